"""Planted faults: each breaks one rule of the product, so that cases of some kinds must find it."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from helpers.graph.case import Part
from tidemark.base.instants import INFINITY
from tidemark.base.settings import bundled_dbt_project
from tidemark.compute.lifecycle import clusters
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.tables import Role, TableName
from tidemark.run import compute, plan
from tidemark.run.erase import erase, recovery
from tidemark.store import lineage
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.fence import Fence
from tidemark.store.event_log.incoming_rows import IncomingRows
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Chunk
from tidemark_streaming.dbt import marts
from tidemark_streaming.derived import DerivedConnector, connector, rebuild
from tidemark_streaming.ingest import arrival_watermarks, chunk_commit
from tidemark_streaming.sink import writer
from tidemark_streaming.sink.changes import Change, derive_changes
from tidemark_streaming.snapshot.asset_results import AssetResults

_ARRIVALS = {"on time": 6.0, "late": 3.0}


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Args:
        plant: changes the product; the patch takes the change back.
        kinds: the weights of the operations under which the fault shows.
        nodes: kinds of nodes, all of which a case must have; `session` is an asset with sessions.
        with_windows: false if cases without an engine show the fault.
        engine_dies: true if the fault shows after the engine was killed.
    """

    plant: Callable[[pytest.MonkeyPatch], None]
    kinds: Mapping[str, float]
    nodes: frozenset[str] = frozenset()
    with_windows: bool = False
    engine_dies: bool = False

    def concerns(self, case: Part) -> bool:
        """Return whether a case has the nodes that show the fault."""
        nodes = case["nodes"].values()
        kinds = {node["kind"] for node in nodes}
        if any("session" in node for node in nodes):
            kinds.add("session")
        return self.nodes <= kinds


def _keep_rows_without_arrival(patch: pytest.MonkeyPatch) -> None:
    take = Fence.fence_off
    patch.setattr(
        Fence, "fence_off", lambda fence, removing=None, vouches=None: take(fence, vouches=vouches)
    )


def _take_last_arrival_again(patch: pytest.MonkeyPatch) -> None:
    pending = DerivedConnector.list_pending

    def again(reader: DerivedConnector, timeline: Sequence[Arrival]) -> list[Chunk]:
        return pending(reader, timeline[:-1] if len(timeline) > 1 else timeline)

    patch.setattr(DerivedConnector, "list_pending", again)


def _skip_heartbeats(patch: pytest.MonkeyPatch) -> None:
    arrivals = DerivedConnector._read_arrivals

    def some(reader: DerivedConnector, base: Any, first: int) -> list[Arrival]:  # noqa: ANN401
        found = arrivals(reader, base, first)
        return [a for a in found if a.rows or a.arrival <= first]

    patch.setattr(DerivedConnector, "_read_arrivals", some)


def _take_latest_watermark(patch: pytest.MonkeyPatch) -> None:
    def latest(_: DerivedSource, reached: Sequence[int | None]) -> int | None:
        return max((mark for mark in reached if mark is not None), default=None)

    patch.setattr(DerivedSource, "watermark_of", latest)


def _forget_look_back(patch: pytest.MonkeyPatch) -> None:
    watermark_of = DerivedSource.watermark_of

    def ahead(source: DerivedSource, reached: Sequence[int | None]) -> int | None:
        found = watermark_of(source, reached)
        return None if found is None else found + max(source.derivation.look_back)

    patch.setattr(DerivedSource, "watermark_of", ahead)


def _do_not_compare_identities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DerivedConnector, "_demand_current", lambda *_: None)


def _classify_by_watermark_after(patch: pytest.MonkeyPatch) -> None:
    to_arrivals = chunk_commit.to_arrivals

    def late(*arguments: Any) -> list[Arrival]:  # noqa: ANN401
        return [replace(a, before=a.after) for a in to_arrivals(*arguments)]

    patch.setattr(chunk_commit, "to_arrivals", late)


def _do_not_compare_definitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage, "derivation_fingerprint", lambda _: "")
    patch.setattr(connector, "derivation_fingerprint", lambda _: "")


def _ignore_unknown_columns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DerivedConnector, "_demand_known_columns", lambda *_: None)


def _promote_without_rows(patch: pytest.MonkeyPatch) -> None:
    replace_rows = rebuild._replace_rows

    def some(warehouse: Warehouse, rebuilt: TableName, published: TableName, *more: Any) -> int:  # noqa: ANN401
        if published.role is Role.EVENT_LOG:
            return 0
        return replace_rows(warehouse, rebuilt, published, *more)

    patch.setattr(rebuild, "_replace_rows", some)


def _lose_dead_letters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IncomingRows, "dead_letters", lambda _: None)


def _ignore_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arrival_watermarks, "after_heartbeat", lambda _, previous, *__: previous)


def _forget_dependents_in_erasures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(erase._ErasureRun, "_erase_downstream", lambda _, report: report)


def _do_not_recompute_erased_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_recompute_asset", lambda *_: None)


def _continue_after_any_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lineage.Lineage, "of_definition", lambda *_: None)


def _ignore_changed_results(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AssetResults, "changes_since", lambda *_: [])


def _forget_lateness_in_chains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chain, "settling_time", property(lambda _: 0))


def _count_late_events_in_backfills(patch: pytest.MonkeyPatch) -> None:
    planned = plan.plan_backfill

    def including(asset: Any, last: Any, start: Any, end: Any, _: str) -> plan.Plan:  # noqa: ANN401
        return planned(asset, last, start, end, "include")

    patch.setattr(plan, "plan_backfill", including)


def _leave_commits_unpublished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "plan_unpublished", lambda *_: [])


def _publish_without_validation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compute, "is_guarded", lambda _: False)


def _keep_touching_sessions_apart(patch: pytest.MonkeyPatch) -> None:
    def starts_beyond_or_touches(end: str, by: Sequence[str]) -> Column:
        earlier = clusters._window_in_order(by).rowsBetween(Window.unboundedPreceding, -1)
        return F.col("_start") >= F.coalesce(F.max(end).over(earlier), F.lit(-INFINITY))

    patch.setattr(clusters, "_starts_beyond", starts_beyond_or_touches)


def _publish_after_any_restore(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "has_version", lambda *_: True)


def _publish_to_any_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "is_current", lambda *_: True)


def _publish_no_deleted_windows(patch: pytest.MonkeyPatch) -> None:
    def some(rows: pa.Table, by: Sequence[str]) -> Iterator[Change]:
        return (change for change in derive_changes(rows, by) if change.after is not None)

    patch.setattr(writer, "derive_changes", some)


def _change_macro(patch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Let marts be built by macros in which a text is replaced."""
    bundled = bundled_dbt_project()
    assert bundled is not None
    folder = Path(mkdtemp(prefix="tidemark-macros-"))
    changed = copytree(bundled, folder / "dbt_project")
    macros = changed / "macros" / "changes.sql"
    text = macros.read_text()
    assert before in text
    macros.write_text(text.replace(before, after))

    def bundled_with_fault() -> Path:
        return changed

    # The folder exists as long as this function, which the end of the patch removes.
    weakref.finalize(bundled_with_fault, rmtree, folder, ignore_errors=True)
    patch.setattr(marts, "bundled_dbt_project", bundled_with_fault)


def _build_from_any_restored_table(patch: pytest.MonkeyPatch) -> None:
    same = "known not in versions_of(table, [newest[0] - known[0] + 1, 1] | max)"
    _change_macro(patch, same, "known[0] > newest[0]")


def _keep_days_of_deleted_windows(patch: pytest.MonkeyPatch) -> None:
    changes = "from table_changes('{{ table }}', {{ first }}, {{ newest }})"
    _change_macro(patch, changes, f"{changes} where _change_type != 'delete'")


FAULTS: Mapping[str, Fault] = {
    "rows of an arrival that was not completed are kept": Fault(
        _keep_rows_without_arrival, {**_ARRIVALS, "kill": 8.0}
    ),
    "an arrival is taken twice": Fault(
        _take_last_arrival_again, _ARRIVALS, frozenset({"row_asset"})
    ),
    "heartbeats are not taken": Fault(
        _skip_heartbeats, {**_ARRIVALS, "heartbeat": 6.0}, frozenset({"union"})
    ),
    "the latest watermark of the bases applies": Fault(
        _take_latest_watermark, _ARRIVALS, frozenset({"union"})
    ),
    "a join forgets how far it looks back": Fault(
        _forget_look_back, _ARRIVALS, frozenset({"join"})
    ),
    "the identities of arrivals are not compared": Fault(
        _do_not_compare_identities, {**_ARRIVALS, "recreate": 6.0}, frozenset({"union"})
    ),
    "events are classified by the watermark after their arrival": Fault(
        _classify_by_watermark_after, _ARRIVALS
    ),
    "a changed definition goes on": Fault(
        _do_not_compare_definitions, {**_ARRIVALS, "within": 6.0}, frozenset({"join"})
    ),
    "an old process loses new columns": Fault(
        _ignore_unknown_columns, {**_ARRIVALS, "old process": 6.0}, frozenset({"union"})
    ),
    "a promotion leaves the rows as they were": Fault(
        _promote_without_rows,
        {**_ARRIVALS, "row function": 6.0, "rebuild a source": 3.0},
        frozenset({"row_asset"}),
    ),
    "rows without a partner are lost": Fault(
        _lose_dead_letters, {**_ARRIVALS, "too late": 6.0}, frozenset({"join"})
    ),
    "heartbeats do not advance the watermark": Fault(
        _ignore_silence, {**_ARRIVALS, "heartbeat": 6.0}
    ),
    "an erasure forgets what reads the source": Fault(
        _forget_dependents_in_erasures,
        {**_ARRIVALS, "erase": 8.0},
        frozenset({"row_asset"}),
        with_windows=True,
    ),
    "an erasure does not recompute windows": Fault(
        _do_not_recompute_erased_windows,
        {**_ARRIVALS, "erase": 8.0},
        frozenset({"asset"}),
        with_windows=True,
    ),
    "any definition continues from any state": Fault(
        _continue_after_any_change,
        {**_ARRIVALS, "aggregate": 4.0, "keys": 4.0},
        frozenset({"asset"}),
        with_windows=True,
    ),
    "a chain ignores recomputed windows": Fault(
        _ignore_changed_results,
        {**_ARRIVALS, "too late": 6.0, "correct": 6.0, "backfill": 4.0},
        frozenset({"chain"}),
        with_windows=True,
    ),
    "a chain takes windows before they are final": Fault(
        _forget_lateness_in_chains, _ARRIVALS, frozenset({"chain"}), with_windows=True
    ),
    "a backfill counts too-late events": Fault(
        _count_late_events_in_backfills,
        {**_ARRIVALS, "too late": 6.0, "backfill": 6.0},
        frozenset({"asset"}),
        with_windows=True,
    ),
    "a commit that was not published stays so": Fault(
        _leave_commits_unpublished,
        {**_ARRIVALS, "kill": 8.0},
        frozenset({"asset"}),
        with_windows=True,
    ),
    "rows are published without validation": Fault(
        _publish_without_validation,
        {**_ARRIVALS, "expectation": 4.0},
        frozenset({"asset"}),
        with_windows=True,
    ),
    "sessions that touch are not merged": Fault(
        _keep_touching_sessions_apart, _ARRIVALS, frozenset({"session"}), with_windows=True
    ),
    "a sink goes on after its table was restored": Fault(
        _publish_after_any_restore,
        {**_ARRIVALS, "restore all": 8.0, "restore one": 4.0},
        frozenset({"sink"}),
        with_windows=True,
    ),
    "a sink goes on in a recreated topic": Fault(
        _publish_to_any_topic, {**_ARRIVALS, "topic": 4.0}, frozenset({"sink"}), with_windows=True
    ),
    "a sink does not retract deleted windows": Fault(
        _publish_no_deleted_windows,
        # A window is deleted with its last event.
        {**_ARRIVALS, "erase": 8.0},
        frozenset({"sink"}),
        with_windows=True,
    ),
    "a mart goes on after its table was restored": Fault(
        _build_from_any_restored_table,
        {**_ARRIVALS, "restore all": 8.0, "restore one": 4.0},
        frozenset({"mart"}),
        with_windows=True,
    ),
    "a mart keeps deleted windows": Fault(
        _keep_days_of_deleted_windows,
        {**_ARRIVALS, "erase alone": 8.0},
        frozenset({"mart"}),
        with_windows=True,
    ),
    "a backfill whose engine died stays unpublished": Fault(
        _leave_commits_unpublished,
        {**_ARRIVALS, "backfill": 8.0},
        frozenset({"asset"}),
        with_windows=True,
        engine_dies=True,
    ),
}


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Within the context, the product has a fault."""
    with pytest.MonkeyPatch.context() as patch:
        fault.plant(patch)
        yield
