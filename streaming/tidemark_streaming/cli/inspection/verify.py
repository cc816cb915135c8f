"""`tidemark parity` and `tidemark lateness`: compare batch with stream, and measure lateness."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import format_duration
from tidemark_streaming.cli.console import format_keys, out, print_table, step
from tidemark_streaming.cli.context import (
    AssetOrDerived,
    From,
    Home,
    SourceName,
    To,
    parse_range,
    resolve_windows,
)
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark.verify.bounds import Lateness
    from tidemark.verify.parity import ParityReport

_MEANING = {
    "missing": "in the event log, but not published",
    "extra": "published, but not in the event log",
    "late_loss": "the complete value, including events that a stream had to exclude",
    "value": "a different value",
}


@with_json
def parity(
    asset: AssetOrDerived,
    begin: From = None,
    end: To = None,
    show: Annotated[int, typer.Option("--limit", min=0, help="How many differences to list.")] = 20,
) -> Output:
    """Recompute an asset's windows in one batch and compare them with the published ones.

    The exit code is 0 if every row is equal, and 1 if any is missing, extra or different. A
    quarantined window is compared as if it were published, and reported. The result also appears on
    the asset's page in Dagster. For a derived source, such as a join, the event log is compared
    with one pass over the event logs of its bases.

    Example: `tidemark parity orders_hourly --from 2026-01-01 --to 2026-02-01`
    """
    from tidemark.store.asset import Asset
    from tidemark.store.log_rewrite import wait_for_rewrite
    from tidemark.verify import record
    from tidemark.verify.parity import parity as compare

    first, last = parse_range(begin, end)
    home = Home()
    if (derived := home.find_derived(asset)) is not None:
        if begin is not None or end is not None:
            raise DefinitionError(
                f"'{asset}' is a derived source, which has no windows: leave out --from and --to."
            )
        return _compare_with_bases(home, derived, show)
    transform = home.asset(asset)
    store = home.warehouse()
    start, stop = resolve_windows(store, transform, first, last)
    with step(f"parity {asset}") as work:
        wait_for_rewrite(store, transform.source)
        compared = Asset(store, transform)
        report = compare(store, transform, start, stop)
        work.note = format_count(report.windows, "row")
        if report.windows == 0:
            where = "" if start is None and stop is None else " in that range"
            raise DataError(
                f"Nothing to compare: neither the event log nor the published table of '{asset}' "
                f"has a window{where}."
            )
        record.append(store, report, start, stop, epoch=compared.epoch)
    return Output(
        {"equal": report.equal, **asdict(report)},
        lambda: print_report(report, show),
        None if report.equal else typer.Exit(1),
    )


def _compare_with_bases(home: Home, source: "DerivedSource", limit: int) -> Output:
    from tidemark.store.log_rewrite import wait_for_rewrite
    from tidemark.verify.derived_parity import derived_parity

    store = home.warehouse()
    with step(f"parity {source.name}") as work:
        wait_for_rewrite(store, source)
        report = derived_parity(store, source)
        work.note = format_count(report.rows, "row")

    def show() -> None:
        if report.equal:
            out().print(
                f"[green]equal[/]: {format_count(report.rows, 'row')} of '{source.name}', compared "
                f"with one pass over its bases through arrival {report.as_of:,}."
            )
            return
        different = format_count(report.missing + report.extra, "difference")
        title = f"{source.name}: {different} in {format_count(report.rows, 'row')}"
        rows = (tuple(difference.values()) for difference in report.differences[:limit])
        more = report.missing + report.extra - limit
        print_table(("kind", "arrival", "row", "reason"), rows, title, more=more)

    data = {"equal": report.equal, **asdict(report)}
    return Output(data, show, None if report.equal else typer.Exit(1))


def print_report(report: "ParityReport", show: int = 20) -> None:
    """Print the result of a comparison, with at most `show` differences."""
    if report.equal:
        out().print(
            f"[green]equal[/]: {format_count(report.windows, 'row')} of '{report.asset}', compared "
            f"with a bounded computation through arrival {report.as_of:,}."
        )
        _print_quarantined(report)
        return
    different = format_count(report.total, "difference")
    title = f"{report.asset}: {different} in {format_count(report.windows, 'row')}"
    columns = ("kind", "window start", "keys", "column", "published", "recomputed")
    rows = (
        (d.kind, d.window_start, format_keys(d.keys), d.column or "", d.published, d.recomputed)
        for d in report.differences[:show]
    )
    print_table(columns, rows, title, more=report.total - show)
    for kind in report.kinds:
        out().print(f"[bold]{kind}[/]: {_MEANING[kind]}")
    _print_quarantined(report)


def _print_quarantined(report: "ParityReport") -> None:
    if report.quarantined:
        are = "is" if report.quarantined == 1 else "are"
        failed = [f"{escape(name)} ({count:,})" for name, count in report.quarantined_by.items()]
        out().print(
            f"Of these, {report.quarantined:,} {are} [bold]in quarantine[/] and not published, "
            f"because of expectation {', '.join(failed)}. `tidemark quarantine list "
            f"{report.asset}` shows why."
        )


@with_json
def lateness(
    source: SourceName,
    target: Annotated[
        float,
        typer.Option(help="The share of events that may be behind the watermark, 0 to below 1."),
    ] = 0.001,
) -> Output:
    """Measure how late a source's events are, and recommend a bound for its watermark.

    The lag of an event is the time from its event time to the newest event time before its arrival.
    For each bound, the command counts the events that would be behind the watermark. This number is
    the maximum loss: open windows and windows within the allowed lateness still accept such events.

    The recommendation leaves out bulk loads, such as history in one file: their events arrive at
    once, so they hide how late live events are.

    Example: `tidemark lateness orders --target 0.01`
    """
    from tidemark.verify.bounds import check_target, measure_lags

    check_target(target)
    home = Home()
    ingestion = home.ingestion(source)
    store = home.warehouse()
    with step(f"lateness {source}") as work:
        lags = measure_lags(store, ingestion.source, target)
        work.note = format_count(lags.total.events, "event")
    return Output(asdict(lags), lambda: _print_lags(source, lags))


def _print_lags(source: str, lateness: "Lateness") -> None:
    live = lateness.live
    total = lateness.total
    lags = Table(title=f"{source}: delay of {format_count(total.events, 'event')}")
    lags.add_column("percentile", justify="right")
    bounds_ = Table(title="maximum loss with a bound")
    bounds_.add_column("bound", justify="right")
    if live is not None:
        lags.add_column("lag without bulk loads", justify="right")
        for name in ("events without bulk loads", "share"):
            bounds_.add_column(name, justify="right")
    lags.add_column("lag", justify="right")
    for name in ("events", "share"):
        bounds_.add_column(name, justify="right")
    shown = [total] if live is None else [live, total]
    for percentile in total.percentiles:
        lags.add_row(
            "all" if percentile == 100 else f"{percentile:g} %",
            *(
                str(timedelta(seconds=round(series.percentiles[percentile] / 1e6)))
                for series in shown
            ),
        )
    most = max((series.candidates for series in shown), key=len)
    recommended = None if live is None else live.recommended
    for n, candidate in [*enumerate(most)][-12:]:
        cells = list[str]()
        for series in shown:
            # A shorter list has ended because no event is lost.
            lost = series.candidates[n] if n < len(series.candidates) else series.candidates[-1]
            cells += [f"{lost.lost:,}", f"{lost.share:.3%}"]
        is_best = recommended is not None and candidate.bound == recommended.bound
        bounds_.add_row(
            format_duration(candidate.bound), *cells, style="bold green" if is_best else None
        )
    out().print(lags, bounds_)
    bulk = _describe_arrivals(lateness.bulk_loads)
    if live is None:
        out().print(
            f"All events arrived in bulk loads ({bulk}), which do not show how late live events "
            "are. So no bound is recommended: repeat the command when further data has arrived."
        )
        return
    left_out = format_count(total.events - live.events, "event")
    out().print(f"Bulk loads are left out of the recommendation: {bulk}, with {left_out}.")
    if live.recommended is not None:
        out().print(
            f"Recommended, to lose at most {lateness.target:.3%}: "
            f'BoundedOutOfOrderness("{format_duration(live.recommended.bound)}").'
        )


def _describe_arrivals(numbers: Sequence[int]) -> str:
    """Return the numbers of arrivals as text, such as `arrivals 0, 1, 2 and 9 more`."""
    shown = ", ".join(f"{number:,}" for number in numbers[:3])
    more = "" if len(numbers) <= 3 else f" and {len(numbers) - 3:,} more"
    return f"arrival{'' if len(numbers) == 1 else 's'} {shown}{more}"
