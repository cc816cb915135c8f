"""Draw lateness from the event log and the published tables.

There are two charts, each saved as a PNG and as one HTML file that needs no network. One shows
event time against processing time, with the watermark between them. The other shows late loss by
day. Times are UTC. The colors are those of Okabe and Ito, which readers with any color vision can
distinguish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import altair as alt
import pandas as pd

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.base.instants import INFINITY, format_duration
from tidemark.store.event_log.arrival import Arrival

BLUE, ORANGE, VERMILION, INK, MUTED = "#0072B2", "#E69F00", "#D55E00", "#1F2933", "#6B7280"
VERDICTS = ("on time", "late", "too late")
_COLOURS = (BLUE, ORANGE, VERMILION)
_Chart = TypeVar("_Chart", alt.LayerChart, alt.VConcatChart, alt.FacetChart)
WIDTH = 820
_FONT = "DejaVu Sans, Verdana, sans-serif"


@dataclass(frozen=True)
class Picture:
    """A saved chart: a PNG for pages and talks, and HTML for a closer look in a browser."""

    png: Path
    html: Path


def arrivals_chart(
    events: pd.DataFrame, timeline: Sequence[Arrival], *, title: str, allowed_lateness: int
) -> alt.LayerChart:
    """Return a chart of event time against processing time, with the watermark as a line.

    Args:
        events: one row for each event: `arrival`, `position`, `event_time` (microseconds),
            `verdict` (one of `VERDICTS`).
        timeline: the arrivals of these events, in order.
        allowed_lateness: microseconds. A second line is this far behind the watermark.

    Raises:
        DataError: nothing to draw: the range has no event.
    """
    if events.empty or not timeline:
        raise DataError("There is no event to draw in this range of arrivals.")
    points = _place_events(events, timeline)
    lines = _watermark_steps(timeline, allowed_lateness)
    x = alt.X(**_instant_encoding("at", "processing time: when the record arrived (UTC)"))
    y = alt.Y(**_instant_encoding("event", "event time: when it happened (UTC)"))
    verdict = alt.Color(
        "verdict:N",
        title="an event is",
        scale=alt.Scale(domain=list(VERDICTS), range=list(_COLOURS)),
        legend=alt.Legend(symbolOpacity=1, symbolSize=110, symbolStrokeWidth=0),
    )
    names = list(dict.fromkeys(lines["line"]))
    dash = alt.StrokeDash(
        "line:N",
        title="compared with",
        scale=alt.Scale(domain=names, range=[[1, 0], [5, 4]][: len(names)]),
        legend=alt.Legend(symbolStrokeColor=INK, symbolStrokeWidth=2, symbolSize=300),
    )
    on_time = alt.datum.verdict == VERDICTS[0]
    dots = alt.Chart(points).encode(x=x, y=y, color=verdict)
    ordinary = dots.transform_filter(on_time).mark_circle(size=9, opacity=0.32)
    late = dots.transform_filter(~on_time).mark_circle(
        size=52, opacity=0.95, stroke="white", strokeWidth=0.7
    )
    steps = alt.Chart(lines).mark_line(interpolate="step-after", color=INK, strokeWidth=1.8)
    tooltip = ["verdict:N", _time_tooltip("event"), _time_tooltip("at"), "arrival:Q"]
    chart = alt.LayerChart(
        layer=[ordinary, steps.encode(x=x, y=y, strokeDash=dash), late.encode(tooltip=tooltip)]
    )
    chart.width = WIDTH
    chart.height = 500
    subtitle = [
        f"{format_count(sum(a.rows for a in timeline), 'event')} in "
        f"{format_count(len(timeline), 'arrival')}; each dot is an event, "
        "placed within its arrival by its order.",
        "An event is late if its whole window lies below the watermark before the event's arrival.",
    ]
    return style_chart(chart, title, subtitle)


def _place_events(events: pd.DataFrame, timeline: Sequence[Arrival]) -> pd.DataFrame:
    """Return the events with `at`, the instant at which to draw each event.

    The events of an arrival are spread by position over the time since the previous arrival.
    """
    begins = _arrival_starts(timeline)
    facts = pd.DataFrame(
        {
            "arrival": [a.arrival for a in timeline],
            "begin": begins,
            "span": [a.arrived_at - b for a, b in zip(timeline, begins, strict=True)],
            "rows": [a.rows for a in timeline],
        }
    )
    rows = events.merge(facts, on="arrival")
    arrived = rows["begin"] + (rows["position"] + 1) * rows["span"] // rows["rows"]
    return pd.DataFrame(
        {
            "at": _to_timestamps(arrived),
            "event": _to_timestamps(rows["event_time"]),
            "arrival": rows["arrival"],
            "verdict": rows["verdict"],
        }
    )


def _arrival_starts(timeline: Sequence[Arrival]) -> list[int]:
    instants = [a.arrived_at for a in timeline]
    # The arrival before the first one is unknown here, so use the time between the first two.
    usual = instants[1] - instants[0] if len(instants) > 1 else 0
    return [instants[0] - usual, *instants[:-1]]


def _watermark_steps(timeline: Sequence[Arrival], allowed_lateness: int) -> pd.DataFrame:
    ends = [(_arrival_starts(timeline)[0], timeline[0].before)]
    ends += [(a.arrived_at, a.after) for a in timeline]
    watermarks = [(instant, mark) for instant, mark in ends if mark is not None and mark < INFINITY]
    behind = f"watermark \N{MINUS SIGN} {format_duration(allowed_lateness)}"
    lines = {"watermark": 0, behind: allowed_lateness}
    points = list[tuple[int, int, str]]()
    for name, back in lines.items():
        for instant, mark in watermarks:
            points.append((instant, mark - back, name))
    return pd.DataFrame(points, columns=["at", "event", "line"]).assign(
        at=lambda d: _to_timestamps(d["at"]), event=lambda d: _to_timestamps(d["event"])
    )


def late_loss_chart(days: pd.DataFrame, *, title: str, allowed_lateness: int) -> alt.VConcatChart:
    """Return a chart of the late events by day of their window, and of the share of events lost.

    The late events are divided into admitted and too-late events. Only the latter are lost.

    Args:
        days: one row for each day: `day` (its start in microseconds), `events` (number of counted
            events), `late` (number of late events among these) and `too_late` (number of events
            that are not counted).
        allowed_lateness: microseconds; it is shown in the subtitle.

    Raises:
        DataError: no window is published, so there is nothing to draw.
    """
    if days.empty:
        raise DataError("There is no published window to draw.")
    table = days.assign(
        day=_to_timestamps(days["day"]), rate=days["too_late"] / (days["events"] + days["too_late"])
    )
    kinds = table.rename(columns={"late": VERDICTS[1], "too_late": VERDICTS[2]}).melt(
        ["day"], list(VERDICTS[1:]), "kind", "count"
    )
    ticks = [t.isoformat() for t in sorted(table["day"].unique())[:: max(1, len(table) // 9)]]
    days_axis = alt.Axis(
        format="%b %-d",
        values=ticks,
        grid=False,
        ticks=False,
        labelFlush=False,
        labelPadding=6,
        labelOffset=WIDTH / len(table) / 2,
    )
    x = alt.X("utcyearmonthdate(day):T", title="day of the window (UTC)", axis=days_axis)
    day = alt.Tooltip("utcyearmonthdate(day):T", title="day", format="%Y-%m-%d")
    kind = alt.Color(
        "kind:N",
        title="an event is",
        scale=alt.Scale(domain=list(VERDICTS[1:]), range=list(_COLOURS[1:])),
    )
    count = alt.Y("count:Q", title="late events per day", axis=alt.Axis(tickMinStep=1))
    order = alt.Order("kind:N", sort="descending")
    bars = alt.Chart(kinds).mark_bar(width={"band": 0.8})
    above = bars.encode(
        x=x.axis(labels=False, ticks=False, grid=False).title(None),
        y=count,
        color=kind,
        order=order,
        tooltip=[day, "kind:N", "count:Q"],
    ).properties(width=WIDTH, height=270)
    share = alt.Y("rate:Q", title="share too late", axis=alt.Axis(format=".2%", tickCount=4))
    below = (
        alt.Chart(table)
        .mark_bar(width={"band": 0.8}, color=VERMILION)
        .encode(x=x, y=share, tooltip=[day, alt.Tooltip("rate:Q", format=".3%")])
        .properties(width=WIDTH, height=120)
    )
    lost = int(days["too_late"].sum())
    total = int((days["events"] + days["too_late"]).sum())
    subtitle = [
        f"{int(days['late'].sum()):,} of {format_count(total, 'event')} arrived after their "
        "window had closed and were counted;",
        f"{lost:,} ({lost / max(total, 1):.3%}) arrived {format_duration(allowed_lateness)} or "
        "more "
        "after that: not counted, but kept in the late table.",
    ]
    return style_chart(alt.vconcat(above, below, spacing=16), title, subtitle)


def save_chart(
    chart: alt.LayerChart | alt.VConcatChart | alt.FacetChart, folder: Path, name: str
) -> Picture:
    """Save a chart as `name.png`, at twice the size on screen, and as `name.html`."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = Picture(folder / f"{name}.png", folder / f"{name}.html")
    chart.save(picture.png, scale_factor=2)
    chart.save(picture.html, inline=True)
    return picture


def style_chart(chart: _Chart, title: str, subtitle: list[str]) -> _Chart:
    """Return a chart with its title, in the common colors and sizes."""
    words = alt.TitleParams(
        title,
        subtitle=subtitle,
        anchor="start",
        frame="group",
        fontSize=20,
        color=INK,
        subtitleColor=MUTED,
        subtitleFontSize=13,
        subtitleLineHeight=18,
        subtitlePadding=6,
        offset=16,
    )
    return (
        chart.properties(title=words, padding=24, background="white")
        .configure(font=_FONT)
        .configure_view(strokeWidth=0)
        .configure_axis(
            gridColor="#E5E7EB",
            domainColor="#9CA3AF",
            tickColor="#9CA3AF",
            labelColor=INK,
            titleColor=INK,
            labelFontSize=12,
            titleFontSize=13,
            titleFontWeight="normal",
            titlePadding=10,
        )
        .configure_legend(
            labelFontSize=13,
            titleFontSize=13,
            titleColor=MUTED,
            titleFontWeight="normal",
            orient="top",
            titleOrient="left",
            columnPadding=16,
            padding=4,
        )
    )


def _instant_encoding(field: str, title: str) -> dict[str, Any]:
    return {
        "shorthand": f"{field}:T",
        "title": title,
        "scale": alt.Scale(type="utc", padding=8),
        "axis": alt.Axis(format="%b %-d, %H:%M", tickCount=6, labelOverlap=True),
    }


def _time_tooltip(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"utcyearmonthdatehoursminutes({field}):T", title=field)


def _to_timestamps(micros: "pd.Series[int]") -> "pd.Series[pd.Timestamp]":
    return pd.to_datetime(micros, unit="us", utc=True)
