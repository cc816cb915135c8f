"""`tidemark parity`: compare the published rows with one batch."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.cli.console import format_keys, print_table, report_step, result_console
from tidemark_streaming.cli.context import (
    AssetOrDerived,
    From,
    Home,
    To,
    parse_range,
    resolve_windows,
)
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark.verify.parity import ParityReport

_MEANING = {
    "missing": "in the event log, but not published",
    "extra": "published, but not in the event log",
    "late_loss": "the complete value, including events that a stream had to exclude",
    "value": "a different value",
}


@with_json
def compare_tables(
    asset: AssetOrDerived,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=0, help="How many differences to list.")] = 20,
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
    from tidemark.verify.parity import check_parity

    first, last = parse_range(begin, end)
    home = Home()
    if (derived := home.find_derived(asset)) is not None:
        if begin is not None or end is not None:
            raise DefinitionError(
                f"'{asset}' is a derived source, which has no windows: leave out --from and --to."
            )
        return _compare_with_bases(home, derived, limit)
    transform = home.find_asset(asset)
    store = home.open_warehouse()
    start, stop = resolve_windows(store, transform, first, last)
    with report_step(f"parity {asset}") as work:
        wait_for_rewrite(store, transform.source)
        compared = Asset(store, transform)
        report = check_parity(store, transform, start, stop)
        work.note = format_count(report.windows, "row")
        if report.windows == 0:
            where = ""
            if start is not None or stop is not None:
                where = " in that range"
            raise DataError(
                f"Nothing to compare: neither the event log nor the published table of '{asset}' "
                f"has a window{where}."
            )
        record.record_comparison(store, report, start, stop, epoch=compared.start_epoch)
    return Output(
        {"equal": report.is_equal, **asdict(report)},
        lambda: print_report(report, limit),
        None if report.is_equal else typer.Exit(1),
    )


def _compare_with_bases(home: Home, source: "DerivedSource", limit: int) -> Output:
    from tidemark.store.log_rewrite import wait_for_rewrite
    from tidemark.verify.derived_parity import check_derived_parity

    store = home.open_warehouse()
    with report_step(f"parity {source.name}") as work:
        wait_for_rewrite(store, source)
        report = check_derived_parity(store, source)
        work.note = format_count(report.rows, "row")

    def show() -> None:
        if report.is_equal:
            result_console().print(
                f"[green]equal[/]: {format_count(report.rows, 'row')} of '{source.name}', compared "
                f"with one pass over its bases through arrival {report.as_of:,}."
            )
            return
        different = format_count(report.missing + report.extra, "difference")
        title = f"{source.name}: {different} in {format_count(report.rows, 'row')}"
        rows = (tuple(difference.values()) for difference in report.differences[:limit])
        more = report.missing + report.extra - limit
        print_table(("kind", "arrival", "row", "reason"), rows, title, more=more)

    data = {"equal": report.is_equal, **asdict(report)}
    return Output(data, show, None if report.is_equal else typer.Exit(1))


def print_report(report: "ParityReport", limit: int = 20) -> None:
    """Print the result of a comparison, with at most `limit` differences."""
    if report.is_equal:
        result_console().print(
            f"[green]equal[/]: {format_count(report.windows, 'row')} of '{report.asset}', compared "
            f"with a bounded computation through arrival {report.as_of:,}."
        )
        _print_quarantined(report)
        return
    different = format_count(report.total, "difference")
    title = f"{report.asset}: {different} in {format_count(report.windows, 'row')}"
    columns = ("kind", "window start", "keys", "column", "published", "recomputed")
    rows = list[tuple[object, ...]]()
    for d in report.differences[:limit]:
        keys = format_keys(d.keys)
        rows.append((d.kind, d.window_start, keys, d.column or "", d.published, d.recomputed))
    print_table(columns, rows, title, more=report.total - limit)
    for kind in report.kinds:
        result_console().print(f"[bold]{kind}[/]: {_MEANING[kind]}")
    _print_quarantined(report)


def _print_quarantined(report: "ParityReport") -> None:
    if report.quarantined:
        are = "is" if report.quarantined == 1 else "are"
        failed = [f"{escape(name)} ({count:,})" for name, count in report.quarantined_by.items()]
        result_console().print(
            f"Of these, {report.quarantined:,} {are} [bold]in quarantine[/] and not published, "
            f"because of expectation {', '.join(failed)}. `tidemark quarantine list "
            f"{report.asset}` shows why."
        )
