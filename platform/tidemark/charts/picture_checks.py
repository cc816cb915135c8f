"""Draw the history of expectations: for each run, the share of validated rows that failed."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.charts.picture import BLUE, ORANGE, VERMILION, WIDTH, style_chart
from tidemark.define.expectations.expectation import WARNING
from tidemark.quality.results import CheckResult

_OUTCOMES = ("as expected", "warning", "quarantined")
_ROW = 64


def history_chart(results: Sequence[CheckResult], *, title: str) -> alt.FacetChart:
    """Return a chart with one strip for each expectation, which has one bar for each run.

    The height of a bar is the share of the validated rows that failed.

    Raises:
        DataError: no result exists that could be drawn.
    """
    if not results:
        raise DataError("There is no expectation result to draw.")
    table = pd.DataFrame([_to_bar(r) for r in results])
    runs = alt.X(
        "run:O",
        title="runs that validated rows, in order, by the last arrival that they processed",
        axis=alt.Axis(labelExpr="split(datum.value, ' ')[1]", labelOverlap=True, labelAngle=0),
        sort=None,
    )
    outcome = alt.Color(
        "outcome:N",
        title="result",
        scale=alt.Scale(domain=list(_OUTCOMES), range=[BLUE, ORANGE, VERMILION]),
    )
    base = alt.Chart(table).encode(x=runs, color=outcome)
    share = alt.Y(
        "share:Q",
        title=None,
        axis=alt.Axis(format=".0%", tickCount=2),
        scale=alt.Scale(domainMin=0),
    )
    tooltip = ["expectation:N", "outcome:N", "failed:Q", "validated:Q", "observed:N", "at:T"]
    bars = base.mark_bar(width={"band": 0.8}).encode(y=share, tooltip=tooltip)
    # A run without failures has a bar without height; a dot shows that it ran.
    dots = base.mark_circle(size=22, opacity=1).encode(y=alt.YDatum(0), tooltip=tooltip)
    names = list(dict.fromkeys(r.expectation for r in results))
    strips = (
        alt.layer(bars, dots)
        .properties(width=WIDTH, height=_ROW)
        .facet(row=alt.Row("expectation:N", title=None, sort=names, header=_HEADER))
        .resolve_scale(y="independent")
    )
    failed = sum(not r.success for r in results)
    subtitle = [
        f"{format_count(len(results), 'result')} of "
        f"{format_count(table['run'].nunique(), 'run')}, {failed:,} of them failed. "
        "The bar is the share of the validated rows that failed."
    ]
    return style_chart(strips, title, subtitle)


_HEADER = alt.Header(labelAnchor="start", labelOrient="top", labelFontSize=13, labelPadding=4)


def _to_bar(result: CheckResult) -> dict[str, object]:
    bad = _OUTCOMES[1] if result.level == WARNING else _OUTCOMES[2]
    return {
        "run": f"{result.commit_number:09d} {result.through_arrival}",
        "at": result.at,
        "expectation": result.expectation,
        "outcome": _OUTCOMES[0] if result.success else bad,
        "share": result.rows_failed / max(result.rows_validated, 1),
        "failed": result.rows_failed,
        "validated": result.rows_validated,
        "observed": result.observed,
    }
