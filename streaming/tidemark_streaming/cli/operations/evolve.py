"""`tidemark diff` and `tidemark rebuild`: compare and apply changed definitions."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import (
    format_keys,
    print_facts,
    print_table,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import (
    Asset,
    AssetOrDerived,
    From,
    Home,
    To,
    parse_range,
    resolve_windows,
)
from tidemark_streaming.cli.output import Output, with_json
from tidemark_streaming.cli.processing.run_report import report_run

if TYPE_CHECKING:
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark.run.change.rebuild import RebuildStatus
    from tidemark.verify.changes import Changes
    from tidemark_streaming.derived.rebuild import RebuiltSource


@with_json
def show_changes(
    asset: Asset,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=0, help="How many values to list.")] = 20,
) -> Output:
    """Compare an asset's definition with the one that made its tables, and list the windows that
    would change.

    The command computes the windows by the new definition and compares them with the published
    ones. It writes nothing. If the event log is large, specify a range.

    Example: `tidemark diff departures_hourly --from 2013-02-01 --to 2013-02-08`
    """
    from tidemark.verify import changes as verify

    first, last = parse_range(begin, end)
    home = Home()
    transform = home.find_asset(asset)
    store = home.open_warehouse()
    start, stop = resolve_windows(store, transform, first, last)
    with report_step(f"compare definitions of {asset}") as work:
        result = verify.compute_changes(store, transform, start, stop, max_listed=limit)
        work.note = f"{format_count(result.windows, 'row')} compared" if result.windows else ""
    return Output(
        {"same": result.has_same_definition, **asdict(result)}, lambda: _print_changes(result)
    )


def _print_changes(result: "Changes") -> None:
    from tidemark.verify.changes import EFFECT_TEXTS

    if result.has_same_definition:
        result_console().print(
            f"[green]the same[/]: the tables of '{result.asset}' were made by the definition in "
            "the code."
        )
        return
    if result.differences:
        print_table(
            ("part", "in the tables", "in the code"),
            ((c.part, c.before, c.after) for c in result.differences),
            f"{result.asset}: differences",
        )
        result_console().print(EFFECT_TEXTS[result.effect].format(asset=result.asset), markup=False)
    if result.earlier_through is not None:
        result_console().print(
            f"Events through arrival {result.earlier_through:,} were computed by an earlier "
            "definition."
        )
    if result.effect == "none" and result.earlier_through is None:
        return
    result_console().print(
        f"Of {format_count(result.windows, 'row')} through arrival {result.as_of:,}: "
        f"{result.row_counts_text}."
    )
    if result.earliest is not None:
        result_console().print(f"Their windows start from {result.earliest} to {result.latest}.")
    for column, count in result.columns.items():
        extent = "in every row" if count is None else format_count(count, "value")
        result_console().print(f"[bold]{column}[/]: {extent}")
    if result.examples:
        print_table(
            ("window start", "keys", "", "column", "before", "after"),
            (
                (e.window_start, format_keys(e.keys), e.kind, e.column or "", e.before, e.after)
                for e in result.examples
            ),
        )


@with_json
def rebuild_tables(
    asset: AssetOrDerived,
    promote: Annotated[
        bool, typer.Option("--promote", help="Replace the published tables with the rebuilt ones.")
    ] = False,
    rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Restore the tables from before the last promotion."),
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete the rebuilt tables and the backup.")
    ] = False,
    keep_backup: Annotated[
        bool,
        typer.Option(
            "--keep-backup/--no-backup",
            help="Keep the replaced tables, for --rollback.",
            show_default=False,
        ),
    ] = True,
) -> Output:
    """Recompute the tables of an asset or a derived source by its current definition, next to the
    published ones.

    A streaming query continues by the earlier definition. `tidemark diff` shows the differences.
    **--promote** processes the arrivals since the rebuild, then replaces the published table in one
    commit.
    **--rollback** restores the previous tables of an asset, which are kept for seven days.

    A derived source, such as a join, is computed again from its bases. Its arrivals are then new
    ones, so everything that reads it is stale until it is recomputed, too.

    Example: `tidemark rebuild departures_hourly`
    """
    from tidemark.run.change import rebuild as run

    if promote + rollback + discard > 1:
        raise DefinitionError("Use at most one of --promote, --rollback and --discard.")
    if not keep_backup and not promote:
        raise DefinitionError("--no-backup requires --promote.")
    home = Home()
    if (derived := home.find_derived(asset)) is not None:
        if rollback or not keep_backup:
            from tidemark_streaming.derived.rebuild import no_backup

            raise no_backup(derived)
        return _rebuild_source(home, derived, promote=promote, discard=discard)
    transform = home.find_asset(asset)
    store = home.open_warehouse(validates=True)
    if discard:
        with report_step(f"discard rebuilt tables of {asset}") as work:
            tables = run.discard_tables(store, transform)
            work.note = format_count(len(tables), "table")
        return Output({"asset": asset, "discarded": tables}, lambda: None)
    if not promote and not rollback:
        with report_step(f"rebuild {asset}") as work:
            status = run.rebuild_tables(store, transform)
            work.note = format_count(status.windows, "window")
        return Output(asdict(status), lambda: _print_rebuilt(status))
    with report_step(f"{'promote' if promote else 'roll back'} {asset}") as work:
        if promote:
            facts = run.promote_tables(store, transform, keep_backup=keep_backup)
        else:
            facts = run.roll_back(store, transform)
        work.note = format_count(facts.windows, "window")
    return report_run(facts)


def _rebuild_source(home: Home, source: "DerivedSource", *, promote: bool, discard: bool) -> Output:
    from tidemark_streaming.derived import rebuild as run

    name = source.name
    store = home.open_warehouse()
    if discard:
        with report_step(f"discard rebuilt tables of {name}") as work:
            tables = run.discard_rebuilt(store, source)
            work.note = format_count(len(tables), "table")
        return Output({"source": name, "discarded": tables}, lambda: None)
    if not promote:
        with report_step(f"rebuild {name}") as work:
            for commit in run.rebuild_source(store, source):
                work.show_count(commit.committed, commit.pending)
            rebuilt = run.describe_rebuilt(store, source)
            work.note = format_count(rebuilt.arrivals, "arrival")
        return Output(asdict(rebuilt), lambda: _print_rebuilt_source(rebuilt))
    with report_step(f"promote {name}") as work:
        promoted = run.promote_source(store, source)
        work.note = format_count(promoted.arrivals, "arrival")
    return Output(asdict(promoted), lambda: _print_stale(name, promoted.stale))


def _print_rebuilt_source(rebuilt: "RebuiltSource") -> None:
    print_facts(
        {
            "rebuilt tables": ", ".join(rebuilt.tables),
            "arrivals": f"{rebuilt.arrivals:,}",
            "rows": f"{rebuilt.rows:,}",
        }
    )
    result_console().print(
        f"`tidemark rebuild {rebuilt.source} --promote` publishes the rebuilt tables.", markup=False
    )


def _print_stale(name: str, below: Sequence[str]) -> None:
    if below:
        result_console().print(
            f"These read '{name}', and are stale until they are recomputed: {', '.join(below)}. "
            "`tidemark status` shows the commands.",
            markup=False,
        )


def _print_rebuilt(status: "RebuildStatus") -> None:
    rows: dict[str, object] = {
        "rebuilt tables": ", ".join(status.tables),
        "through arrival": f"{status.through:,} ({status.asset} is at {status.current:,})",
        "windows": f"{status.windows:,}",
    }
    if status.quarantined:
        rows["quarantined"] = f"{status.quarantined:,}"
    print_facts(rows)
    result_console().print(
        f"`tidemark diff {status.asset}` shows the differences. `tidemark rebuild {status.asset} "
        "--promote` publishes the rebuilt tables.",
        markup=False,
    )
