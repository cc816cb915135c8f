"""A mistake that shows when a definition runs is one line: the asset, the cause, the place."""

from pathlib import Path

import pytest

from commands import call
from landing import HEADER, clock, land
from tidemark.base.settings import Settings

ASSETS = """\
from pyspark.sql import functions as F
from tidemark import aggregate as agg
from tidemark.transform import windowed_asset
from tidemark.window import Sliding, Tumbling

from landing import SOURCE

HOUR = Tumbling("1 hour")


@F.udf("int")
def broken(value):
    return 1 // (value - value)


@windowed_asset(source=SOURCE, window=HOUR, aggregates={"n": agg.sum("valeu")})
def typo(rows):
    return rows


@windowed_asset(source=SOURCE, window=HOUR, aggregates={"n": agg.sum("sensor")})
def text(rows):
    return rows


@windowed_asset(source=SOURCE, window=HOUR, aggregates={"n": agg.count()})
def forgotten(rows):
    rows.where("value > 0")


@windowed_asset(source=SOURCE, window=HOUR, aggregates={"n": agg.count()})
def raising(rows):
    return rows.where(unknown)


@windowed_asset(source=SOURCE, window=HOUR, aggregates={"n": agg.sum("more")})
def udf(rows):
    return rows.withColumn("more", broken("value"))


@windowed_asset(
    source=SOURCE, window=Sliding("1 hour", "10 minutes"), aggregates={"n": agg.count()}
)
def sliding(rows):
    return rows
"""
FEED = """\
from landing import SOURCE, feed
from tidemark_streaming.feed import Inlet

inlet = Inlet(source=SOURCE, feed=feed)
"""


@pytest.fixture(scope="module", autouse=True)
def ingested(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A domain of assets that can't run, and events of its source."""
    domain = tmp_path_factory.mktemp("domains") / "mistaken"
    domain.mkdir()
    for name, text in (("__init__", ""), ("transforms", ASSETS), ("feed", FEED)):
        (domain / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(domain.parent)
        patch.setenv("TIDEMARK_DOMAINS", "mistaken")
        land(here.landing / "sensors", "0.csv", f"{HEADER}{clock(0)},york,1\n", 0)
        assert call("ingest", "sensors").exit_code == 0
    return domain


@pytest.fixture(autouse=True)
def _in_it(ingested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ingested.parent)
    monkeypatch.setenv("TIDEMARK_DOMAINS", "mistaken")
    monkeypatch.chdir(ingested)


@pytest.mark.parametrize(
    ("asset", "said"),
    [
        ("typo", "Asset 'typo' can't run on source 'sensors': "),
        ("text", "Asset 'text': the engine refuses \"sum(sensor)\": "),
        (
            "forgotten",
            "Asset 'forgotten': its function must return a DataFrame (got NoneType). Is its "
            "`return` missing?",
        ),
        (
            "raising",
            "Asset 'raising': its function failed at transforms.py, line 32: NameError: name "
            "'unknown' is not defined.",
        ),
        (
            "udf",
            "Asset 'udf': a Python function failed at transforms.py, line 13: "
            "ZeroDivisionError: integer division or modulo by zero.",
        ),
    ],
)
def test_a_mistake_is_one_line(asset: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = call("run", asset)
    assert result.exit_code == 2
    assert result.stdout == ""
    told = [line for line in result.stderr.splitlines() if not line.startswith("✓")]
    assert told[0].startswith(f"error: {said}"), result.stderr
    assert len(told) == 1
    # What Spark's client logs goes past the command's own output.
    assert "{" not in capfd.readouterr().err


def test_an_event_in_six_windows_is_one_event() -> None:
    told = " ".join(call("run", "sliding").stdout.split())
    assert "events 1 in windows 6, of which on time 6" in told
