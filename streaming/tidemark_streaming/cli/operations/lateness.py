"""`tidemark watermark --recommend`: how late events are, and which bound fits them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.instants import format_duration
from tidemark_streaming.cli.console import report_step, result_console
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output

if TYPE_CHECKING:
    from tidemark.verify.bounds import Lags, Lateness

_SHOWN_BOUNDS = 12
"""Number of bounds in the table, the largest."""


def recommend_bound(source: str, target: float) -> Output:
    """Measure how late a source's events are, and recommend a bound for its watermark.

    Args:
        target: the share of events that may be behind the watermark, from 0 to below 1.
    """
    from tidemark.verify.bounds import check_target, measure_lags

    check_target(target)
    home = Home()
    ingestion = home.find_ingestion(source)
    store = home.open_warehouse()
    with report_step(f"measure {source}") as work:
        lateness = measure_lags(store, ingestion.source, target)
        work.note = format_count(lateness.total.events, "event")
    return Output(asdict(lateness), lambda: _print_lateness(source, lateness))


def _print_lateness(source: str, lateness: "Lateness") -> None:
    live = lateness.live
    total = lateness.total
    shown_lags = [total] if live is None else [live, total]
    lags_table = _make_lags_table(source, shown_lags)
    result_console().print(lags_table, _make_bounds_table(lateness, shown_lags))
    bulk_loads = _describe_arrivals(lateness.bulk_loads)
    if live is None:
        result_console().print(
            f"All events arrived in bulk loads ({bulk_loads}), which do not show how late live "
            "events are. So no bound is recommended: repeat the command when further data has "
            "arrived."
        )
        return
    left_out = format_count(total.events - live.events, "event")
    result_console().print(
        f"Bulk loads are left out of the recommendation: {bulk_loads}, with {left_out}."
    )
    if live.recommended is not None:
        result_console().print(
            f"Recommended, to lose at most {lateness.target:.3%}: "
            f'BoundedOutOfOrderness("{format_duration(live.recommended.bound)}").'
        )


def _make_lags_table(source: str, shown_lags: "Sequence[Lags]") -> Table:
    """Return the lag at each percentile, for each of the shown lags."""
    total = shown_lags[-1]
    table = Table(title=f"{source}: delay of {format_count(total.events, 'event')}")
    table.add_column("percentile", justify="right")
    if len(shown_lags) > 1:
        table.add_column("lag without bulk loads", justify="right")
    table.add_column("lag", justify="right")
    for percentile in total.percentiles:
        cells = ["all" if percentile == 100 else f"{percentile:g} %"]
        for lags in shown_lags:
            seconds = round(lags.percentiles[percentile] / 1e6)
            cells.append(str(timedelta(seconds=seconds)))
        table.add_row(*cells)
    return table


def _make_bounds_table(lateness: "Lateness", shown_lags: "Sequence[Lags]") -> Table:
    """Return the loss with each bound, for each of the shown lags."""
    table = Table(title="maximum loss with a bound")
    table.add_column("bound", justify="right")
    if len(shown_lags) > 1:
        table.add_column("events without bulk loads", justify="right")
        table.add_column("share", justify="right")
    table.add_column("events", justify="right")
    table.add_column("share", justify="right")
    recommended = None if lateness.live is None else lateness.live.recommended
    longest = max((lags.candidates for lags in shown_lags), key=len)
    first = max(0, len(longest) - _SHOWN_BOUNDS)
    for number in range(first, len(longest)):
        bound = longest[number].bound
        cells = [format_duration(bound)]
        for lags in shown_lags:
            # A shorter list has ended because no event is lost.
            last = len(lags.candidates) - 1
            candidate = lags.candidates[min(number, last)]
            cells += [f"{candidate.lost:,}", f"{candidate.share:.3%}"]
        is_recommended = recommended is not None and bound == recommended.bound
        table.add_row(*cells, style="bold green" if is_recommended else None)
    return table


def _describe_arrivals(numbers: Sequence[int]) -> str:
    """Return the numbers of arrivals as text, such as `arrivals 0, 1, 2 and 9 more`."""
    noun = "arrival" if len(numbers) == 1 else "arrivals"
    shown = ", ".join(f"{number:,}" for number in numbers[:3])
    more = len(numbers) - 3
    if more > 0:
        return f"{noun} {shown} and {more:,} more"
    return f"{noun} {shown}"
