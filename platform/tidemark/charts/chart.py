"""Draw small charts to show next to the figures of a run.

Each chart has at most a few hundred shapes, so it is small enough to embed in a page. Times are
UTC.
"""

import io
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from tidemark.base.counts import format_count
from tidemark.base.instants import INFINITY, format_duration
from tidemark.charts.picture import BLUE, INK, MUTED, VERMILION
from tidemark.store.event_log.arrival import Arrival
from tidemark.verify.bounds import Lateness

_WIDTH = 720
_MOST_ARRIVALS = 20
_AXIS = alt.Axis(format="%b %-d, %H:%M", labelOverlap=True, tickCount=8)
_UTC = alt.Scale(type="utc")


def timeline_chart(arrivals: Sequence[Arrival]) -> alt.LayerChart | None:
    """Return a chart of event time against processing time, with the watermark after each arrival.

    The chart shows the newest `_MOST_ARRIVALS` arrivals. Return None if fewer than two of these
    have event times.
    """
    rows = list[dict[str, Any]]()
    for arrival in arrivals[-_MOST_ARRIVALS:]:
        if arrival.min_event_time is None or arrival.max_event_time is None:
            continue
        watermark: Any = None
        if arrival.after is not None and arrival.after < INFINITY:
            watermark = _to_timestamp(arrival.after)
        rows.append(
            {
                "at": _to_timestamp(arrival.arrived_at),
                "oldest": _to_timestamp(arrival.min_event_time),
                "newest": _to_timestamp(arrival.max_event_time),
                "watermark": watermark,
            }
        )
    if len(rows) < 2:
        return None
    table = alt.Chart(pd.DataFrame(rows))
    x = alt.X("at:T", title="processing time", scale=_UTC, axis=_AXIS)
    y = alt.Y("oldest:T", title="event time", scale=_UTC, axis=_AXIS)
    spans = table.mark_rule(color=BLUE, opacity=0.55, strokeWidth=3).encode(x=x, y=y, y2="newest:T")
    steps = table.mark_line(interpolate="step-after", color=INK, strokeWidth=1.6).encode(
        x=x, y="watermark:T"
    )
    return _apply_style(
        alt.LayerChart(layer=[spans, steps]),
        240,
        "Event time against processing time",
        "Blue: the range of event times in each arrival. Line: the watermark after it.",
    )


def lateness_chart(observed: Lateness, bound: int | None) -> alt.LayerChart | None:
    """Return a chart that shows, for each watermark bound, the share of events with a larger lag.

    Bulk loads are left out, unless all events arrived in bulk loads. The source's own bound is
    highlighted. Return None if no event arrived out of order.

    Args:
        bound: the source's bound in microseconds; None if it has none.
    """
    lags = observed.live or observed.total
    rows = list[dict[str, Any]]()
    for candidate in lags.candidates:
        if candidate.bound > 0:
            share = candidate.share
            name = format_duration(candidate.bound)
            rows.append({"bound": name, "share": share, "label": f"{share:.2%}"})
    if not rows or rows[0]["share"] == 0:
        return None
    table = alt.Chart(pd.DataFrame(rows))
    marked = alt.datum.bound == ("" if bound is None else format_duration(bound))
    x = alt.X(
        "bound:N",
        sort=None,
        title="lag behind the newest event, more than",
        axis=alt.Axis(labelAngle=-35),
    )
    y = alt.Y("share:Q", title="share of events", axis=alt.Axis(format="%"))
    colour = alt.condition(marked, alt.value(VERMILION), alt.value(BLUE))
    bars = table.mark_bar().encode(x=x, y=y, color=colour)
    labels = table.mark_text(dy=-6, color=MUTED, fontSize=10).encode(x=x, y=y, text="label:N")
    bound_note = f" In red: the source's bound, {format_duration(bound)}." if bound else ""
    return _apply_style(
        alt.LayerChart(layer=[bars, labels]),
        220,
        "Lag of events on arrival",
        f"{format_count(lags.events, 'event')} that did not arrive in bulk loads.{bound_note}"
        if observed.live
        else f"{format_count(lags.events, 'event')} in the event log.{bound_note}",
    )


def heat_map(windows: pd.DataFrame, unit: str) -> alt.LayerChart | None:
    """Return a heat map of the number of events in windows, by key and time; None without windows.

    Args:
        windows: one row for each cell: `start` (microseconds), `key`, `events`.
        unit: time span of a cell: `hour` or `day`.
    """
    if windows.empty:
        return None
    span = 3_600_000_000 if unit == "hour" else 86_400_000_000
    keys = list(windows.groupby("key")["events"].sum().sort_values(ascending=False).index)
    table = windows.assign(
        at=pd.to_datetime(windows["start"], unit="us", utc=True),
        until=pd.to_datetime(windows["start"] + span, unit="us", utc=True),
    )
    cells = (
        alt.Chart(table)
        .mark_rect(stroke="white", strokeWidth=0.4)
        .encode(
            x=alt.X("at:T", title=None, scale=_UTC, axis=_AXIS),
            x2="until:T",
            y=alt.Y("key:N", title=None, sort=keys),
            color=alt.Color("events:Q", title="events", scale=alt.Scale(scheme="viridis")),
        )
    )
    return _apply_style(
        alt.LayerChart(layer=[cells]),
        max(60, 22 * len(keys)),
        f"Events per window, by {unit} of the window's start",
        "White: no published window.",
    )


def to_svg(chart: alt.LayerChart | alt.FacetChart) -> str:
    """Return a chart as the text of an SVG: sharp at any size, and a third of the size of a PNG."""
    text = io.StringIO()
    chart.save(text, format="svg")
    return text.getvalue()


def _apply_style(chart: alt.LayerChart, height: int, title: str, subtitle: str) -> alt.LayerChart:
    words = alt.TitleParams(
        title, subtitle=subtitle, anchor="start", color=INK, subtitleColor=MUTED, offset=10
    )
    return (
        chart.properties(width=_WIDTH, height=height, title=words, padding=12, background="white")
        .configure_view(strokeWidth=0)
        # A browser's font may be wider than the one used to measure the labels.
        .configure_axis(gridColor="#E5E7EB", labelColor=INK, titleColor=MUTED, titlePadding=12)
    )


def _to_timestamp(micros: int | None) -> pd.Timestamp | None:
    if micros is None:
        return None
    return pd.Timestamp(micros, unit="us", tz="UTC")
