"""`tidemark watermark`: show a source's watermark, recommend its bound, and lower it if it is far
in the future."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import format_instant
from tidemark_streaming.cli.console import (
    format_keys,
    message_console,
    print_facts,
    print_table,
    print_warning,
    report_step,
)
from tidemark_streaming.cli.context import Home, SourceName
from tidemark_streaming.cli.operations.lateness import recommend_bound
from tidemark_streaming.cli.operations.maintain import find_blocker
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.source import Source
    from tidemark_streaming.snapshot.snapshot import Snapshot

_TARGET = 0.001
"""The share of events that may be behind the watermark, unless the user specifies another."""


@with_json
def show_watermark(
    source: SourceName,
    lower: Annotated[
        bool,
        typer.Option(
            "--lower",
            help="Recompute the recorded watermarks with the current definition, and then the "
            "assets. This never raises a watermark.",
        ),
    ] = False,
    recommend: Annotated[
        bool,
        typer.Option(
            "--recommend",
            help="Measure how late the events are, and recommend a bound for the watermark.",
        ),
    ] = False,
    target: Annotated[
        float | None,
        typer.Option(
            help="With --recommend: the share of events that may be behind the watermark, 0 to "
            f"below 1; {_TARGET} if omitted."
        ),
    ] = None,
) -> Output:
    """Show a source's watermark, its partitions, and the event that moved it too far ahead.

    The partition that is listed first holds a `PerPartition` watermark back, unless all are idle.
    For a derived source, the bases are listed, and which of them hold its watermark back.

    **--lower** recovers from an event that is dated far in the future. Set `max_future_skew` in the
    source first, and stop its ingest and the streaming queries of its assets.

    **--recommend** shows the lags of the events: the times from their event times to the newest
    event time before their arrival. For each bound, it counts the events that would be behind the
    watermark. This number is the maximum loss: open windows and windows within the allowed lateness
    still accept such events. The recommendation leaves out bulk loads, such as history in one file:
    their events arrive at once, so they hide how late live events are.

    Example: `tidemark watermark orders --recommend --target 0.01`
    """
    from tidemark_streaming.ingest.future_watermark import find_future_watermark

    if lower and recommend:
        raise DefinitionError("Use either --lower or --recommend, not both.")
    if target is not None and not recommend:
        raise DefinitionError("--target requires --recommend, whose loss it limits.")
    if recommend:
        return recommend_bound(source, _TARGET if target is None else target)
    home = Home()
    lowered = home.find_source(source)
    snapshot = home.open_snapshot()
    result: dict[str, object] = {}
    if lower:
        result = _lower_watermark(home, lowered)
    seen = snapshot.read_source(lowered)
    ahead = find_future_watermark(snapshot, lowered)
    result |= {
        "source": source,
        "watermark": format_instant(seen.watermark),
        "processing_clock": format_instant(seen.clock),
        "newest_event": format_instant(seen.newest_event),
    }
    warning = None if ahead is None else str(ahead)
    partitions = _list_partitions(snapshot, lowered)
    bases = _list_bases(snapshot, lowered)

    def show() -> None:
        print_facts({name.replace("_", " "): value for name, value in result.items()})
        if partitions:
            partition_column = str(lowered.watermark.group_column)
            rows = list[tuple[object, ...]]()
            for partition in partitions:
                keys = format_keys({partition_column: partition["value"]})
                state = "idle" if partition["idle"] else "active"
                rows.append((keys, partition["watermark"], partition["heard_at"], state))
            print_table(("partition", "watermark", "last event arrived", "state"), rows)
        if bases:
            columns = ("base", "watermark", "silent since", "state")
            print_table(columns, [tuple(base.values()) for base in bases])
        if warning is not None:
            print_warning(warning)

    data = {**result, "partitions": partitions, "bases": bases, "warning": warning}
    return Output(data, show)


def _list_bases(snapshot: "Snapshot", source: "Source") -> list[dict[str, object]]:
    """Return the bases of a derived source as of its newest arrival; none for other sources."""
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark_streaming.snapshot.bases import read_bases

    if not isinstance(source, DerivedSource):
        return []
    rows = list[dict[str, object]]()
    for base in read_bases(snapshot.tables, source):
        state = "holds back" if base.holds_back else "ahead"
        if base.idle and not base.holds_back:
            state = "idle"
        rows.append(
            {
                "name": base.name,
                "watermark": format_instant(base.watermark),
                "silent_since": format_instant(base.silent_since),
                "state": state,
            }
        )
    return rows


def _list_partitions(snapshot: "Snapshot", source: "Source") -> list[dict[str, object]]:
    """Return the partitions of a source's `PerPartition` watermark; none for other watermarks."""
    from tidemark.define.watermarks import PerPartition
    from tidemark.store.event_log.arrival import read_arrivals

    strategy = source.watermark
    if not isinstance(strategy, PerPartition):
        return []
    newest = snapshot.tables.read_newest(source.timeline_table, "arrival", None, 1)
    if newest is None:
        return []
    rows = list[dict[str, object]]()
    for last in read_arrivals(newest):
        for partition in strategy.list_partitions(last.watermark_state, last.arrived_at):
            rows.append(
                {
                    "value": partition.value,
                    "watermark": format_instant(partition.watermark),
                    "heard_at": format_instant(partition.heard_at),
                    "idle": partition.idle,
                }
            )
    return rows


def _lower_watermark(home: Home, source: "Source") -> dict[str, object]:
    """Lower the recorded watermarks, and recompute the assets of the source that have run."""
    from tidemark.run import runner
    from tidemark.store import operations
    from tidemark.store.asset import Asset
    from tidemark.store.operations import Kind
    from tidemark.store.upkeep import checkpoints
    from tidemark_streaming.ingest.future_watermark import lower_watermarks

    name = source.name
    owner = source.timeline_table.owner
    assets = [d for d in home.definitions.transforms.values() if d.source.name == name]
    for asset in assets:
        if (blocker := find_blocker(home.settings, asset.name)) is not None:
            raise DataError(blocker)
    folder = f"{home.settings.warehouse}/{home.settings.database}"
    store = home.open_warehouse(validates=True)
    with ExitStack() as recorded:

        def record() -> None:
            recorded.enter_context(operations.record_operation(store, Kind.LOWER, owner))

        if any(
            o.owner == owner and o.kind is Kind.LOWER for o in operations.find_unfinished(folder)
        ):
            record()
        with report_step(f"lower the watermark of {name}") as work:
            lowered = lower_watermarks(store, source, on_change=record)
            work.note = format_count(lowered.arrivals, "arrival")
        ran = [d for d in assets if Asset(store, d).state.read_last_commit().commit_number >= 0]
        for asset in sorted(ran, key=lambda d: d.rolled_up_name is not None):
            with report_step(f"recompute {asset.name}"):
                if asset.rolled_up_name is None:
                    # The asset's checkpoint can't be used with a rewritten timeline.
                    checkpoints.remove_checkpoint(store, asset.name)
                    runner.backfill(store, asset)
                else:
                    runner.incremental(store, asset)
    if lowered.first is None:
        message_console().print(f"All watermarks of '{name}' match the definition.")
    stale = [] if lowered.first is None else _list_stale_below(home, source)
    return {
        "lowered_arrivals": lowered.arrivals,
        "first_arrival": lowered.first,
        "watermark_before": format_instant(lowered.before),
        "recomputed": ", ".join(asset.name for asset in ran) or None,
        "stale": ", ".join(stale) or None,
    }


def _list_stale_below(home: Home, source: "Source") -> list[str]:
    """Return the sources and assets below a source that are stale, or that no domain defines."""
    from tidemark.define import tables
    from tidemark.store.graph import Graph
    from tidemark.store.lineage import Lineage

    snapshot = home.open_snapshot()
    names = list[str]()
    lineage = Lineage(snapshot.tables)
    folder = f"{home.settings.warehouse}/{home.settings.database}"
    for node in Graph.of_folder(folder).nodes_below(tables.source_owner(source.name)):
        if (asset := home.definitions.transforms.get(node.name)) is not None:
            stale = lineage.of_asset(asset)
        elif (derived := home.find_derived(node.name)) is not None:
            stale = lineage.of_source(derived)
        else:
            names.append(f"{node.name} (no domain defines it)")
            continue
        if stale is not None:
            names.append(node.name)
    return names
