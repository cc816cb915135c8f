"""Draw the curves: the seconds of each phase against the fact that grows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from benchmarks.scale.load import Curve
from benchmarks.scale.points import Point
from tidemark.charts.picture import BLUE, ORANGE, VERMILION

_PHASES = ("ingest", "backfill", "increment")
_COLOURS = (BLUE, ORANGE, VERMILION)
_COLUMNS = 2


def draw(curves: Sequence[Curve], points: Mapping[str, Sequence[Point]], path: Path) -> None:
    """Save one chart for each curve, with logarithmic axes, as one SVG."""
    charts = [_chart(curve, points[curve.name]) for curve in curves]
    alt.concat(*charts, columns=_COLUMNS).save(str(path))


def _chart(curve: Curve, points: Sequence[Point]) -> alt.Chart:
    rows = pd.DataFrame(
        {"fact": value, "phase": phase, "seconds": getattr(point, phase)}
        for value, point in zip(curve.values, points, strict=True)
        for phase in _PHASES
    )
    # A share may be 0, which has no logarithm.
    kind = "log" if min(curve.values) > 0 else "linear"
    return (
        alt.Chart(rows, title=curve.name, width=320, height=200)
        .mark_line(point=True)
        .encode(
            x=alt.X("fact:Q", title=curve.fact, scale=alt.Scale(type=kind)),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log")),
            color=alt.Color("phase:N", scale=alt.Scale(domain=list(_PHASES), range=list(_COLOURS))),
        )
    )
