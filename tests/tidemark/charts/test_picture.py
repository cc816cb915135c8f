"""Tests of the charts with generated events: complete, not blank, and without network access."""

import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pandas as pd
import pytest
import vl_convert

from helpers.suite.pages import ROOT
from tidemark.base.errors import DataError
from tidemark.base.instants import parse_duration, parse_instant
from tidemark.charts import picture
from tidemark.store.event_log.arrival import Arrival

HOUR = parse_duration("1 hour")
T0 = parse_instant("2013-01-01")


def timeline(count: int) -> list[Arrival]:
    """Return arrivals of ten events, six hours apart, with the watermark three hours behind."""
    marks = [None, *(T0 + (6 * n - 3) * HOUR for n in range(1, count + 1))]
    return [
        Arrival(
            arrival=n,
            arrived_at=T0 + 6 * (n + 1) * HOUR,
            before=marks[n],
            after=marks[n + 1],
            rows=10,
            min_event_time=None,
            max_event_time=None,
            bytes=0,
            position="{}",
        )
        for n in range(count)
    ]


def events(count: int) -> pd.DataFrame:
    rows = [
        (n, p, T0 + (6 * n + p // 2) * HOUR, picture.VERDICTS[p % 3])
        for n in range(count)
        for p in range(10)
    ]
    return pd.DataFrame(rows, columns=["arrival", "position", "event_time", "verdict"])


def days(count: int) -> pd.DataFrame:
    rows = [(T0 + 24 * n * HOUR, 900, 20 + n, n % 3) for n in range(count)]
    return pd.DataFrame(rows, columns=["day", "events", "late", "too_late"])


def pixels(png: Path) -> tuple[int, int, int]:
    """Return the width, the height and the number of different byte values in the image data."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    packed, at = b"", 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return width, height, len(set(zlib.decompress(packed)))


def drawn(chart: alt.LayerChart, layer: int) -> pd.DataFrame:
    data = chart.layer[layer].data
    assert isinstance(data, pd.DataFrame)
    return data


def assert_whole(saved: picture.Picture) -> None:
    width, height, values = pixels(saved.png)
    assert width > 1500
    assert height > 800
    assert values > 50, "the picture is blank"
    html = saved.html.read_text()
    assert "vegaEmbed" in html
    assert not re.search(r"""(src|href)\s*=\s*["']https?:""", html), "it needs the network"


@pytest.mark.parametrize("count", [1, 2, 12])
def test_arrivals_are_drawn_against_the_watermark(tmp_path: Path, count: int) -> None:
    chart = picture.arrivals_chart(
        events(count), timeline(count), title="Arrivals", allowed_lateness=3 * HOUR
    )
    assert_whole(picture.save_chart(chart, tmp_path / "new" / "folder", "arrivals"))


@pytest.mark.parametrize("count", [1, 70])
def test_late_loss_is_drawn_by_day(tmp_path: Path, count: int) -> None:
    chart = picture.late_loss_chart(days(count), title="Late loss", allowed_lateness=3 * HOUR)
    assert_whole(picture.save_chart(chart, tmp_path, "late_loss"))


def test_the_too_late_line_lags_by_the_allowed_lateness() -> None:
    chart = picture.arrivals_chart(events(3), timeline(3), title="", allowed_lateness=2 * HOUR)
    lines = drawn(chart, 1)
    (near,), (far,) = (
        set(lines[lines["line"] == name]["event"].tail(1)) for name in lines["line"].unique()
    )
    assert near - far == pd.Timedelta(hours=2)


def test_each_event_is_drawn_within_its_arrival() -> None:
    chart = picture.arrivals_chart(events(3), timeline(3), title="", allowed_lateness=0)
    rows = drawn(chart, 0)
    for number, arrival in enumerate(timeline(3)):
        at = rows[rows["arrival"] == number]["at"]
        assert at.max() == pd.Timestamp(arrival.arrived_at, unit="us", tz="UTC")
        assert at.is_monotonic_increasing
        assert at.nunique() == 10


def test_a_chart_without_data_is_refused() -> None:
    with pytest.raises(DataError, match="no event to draw"):
        picture.arrivals_chart(events(0), [], title="", allowed_lateness=0)
    with pytest.raises(DataError, match="no published window"):
        picture.late_loss_chart(days(0), title="", allowed_lateness=0)


def find_labels(svg: str, title: str) -> set[str]:
    """Return the texts of a chart except its title, without numbers and dates."""
    root = ElementTree.fromstring(svg)
    texts = {element.text or "" for element in root.iter() if element.tag.endswith("}text")}
    labels = set[str]()
    for text in texts - {title}:
        words = re.sub(r"[\d:.,%]+|\b(AM|PM|[A-Z][a-z]{2})\b", "", text).split()
        if words:
            labels.add(" ".join(words))
    return labels


SHOWN = {
    "arrivals": picture.arrivals_chart(
        events(3), timeline(3), title="T", allowed_lateness=3 * HOUR
    ),
    "late_loss": picture.late_loss_chart(days(3), title="T", allowed_lateness=3 * HOUR),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_charts_of_the_docs_have_the_texts_of_today(name: str) -> None:
    shown = (ROOT / "docs" / "images" / "demo" / f"{name}.svg").read_text()
    (title,) = re.findall(r">([^<]*departures_hourly|Flights arrive[^<]*)</text>", shown)
    now = vl_convert.vegalite_to_svg(SHOWN[name].to_dict())
    assert find_labels(shown, title) == find_labels(now, "T"), "make demo, then make screenshots"


def test_the_titles_of_the_docs_charts_are_those_of_the_demo() -> None:
    shown = "".join(
        (ROOT / "docs" / "images" / "demo" / f"{name}.svg").read_text() for name in SHOWN
    )
    code = (ROOT / "streaming/tidemark_streaming/cli/getting_started/closing.py").read_text()
    for title in ("Flights arrive out of order: ", "Events lost with an allowed lateness of "):
        assert title in code
        assert title in shown
