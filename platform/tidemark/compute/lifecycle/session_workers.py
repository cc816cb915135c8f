"""Replay session clusters in the engine's Python workers.

A worker receives only the bounds, arrivals and watermarks of a cluster's fragments. With
`session_replay`, it determines which sessions the fragments formed, and when these sessions fired.
The partials stay in the engine.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from tidemark.compute.lifecycle.clusters import (
    cluster_columns,
    cluster_window,
    earliest_open,
    is_plain,
)
from tidemark.compute.lifecycle.session_replay import Firing as Fired
from tidemark.compute.lifecycle.session_replay import Fragment, Replay
from tidemark.compute.slot import AsOf
from tidemark.define.column_type import data_type
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import (
    CLOCK,
    FIRED,
    PHASE,
    VERDICT,
    WATERMARK_AFTER,
    WATERMARK_BEFORE,
)
from tidemark.define.triggers.firings import Firing, next_tick, with_tick_arrival
from tidemark.define.triggers.trigger import Trigger
from tidemark.engine.queries.requests import observe_rows
from tidemark.store.event_log.log import Log

_PLAN = data_type(
    """array<struct<start: bigint, end: bigint, pane: int, phase: int, fired: bigint,
    live: boolean, members: array<int>, fresh: array<int>,
    replaces: array<struct<start: bigint, end: bigint, deleted: boolean, members: array<int>>>>>"""
)


def replay_clusters(
    fragments: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    *,
    accumulation: str | None = None,
    names: list[str] | None = None,
    opened: Observation | None = None,
) -> DataFrame:
    """Replay the clusters that are not plain, and return their firings.

    A plain cluster (see `clusters`) is one session, which fires once. With early firings, all
    clusters are replayed. The columns are those of `aligned.list_firings`, and in addition:

    - `_live`: true if the firing's row is current: no later firing has replaced the row
    - `_deleted`, a field of each entry of `_replaces`: true if no current row has the window of the
      replaced row

    Args:
        accumulation: the accumulation of the panes; None if the caller needs only current rows.
            With None, `_upto` is empty unless the firing's row is current. A firing is then left
            out if its row is not current and it deleted no row.
        names: the columns of a fragment to return in `_upto`; `partial_columns` by default.
        opened: an observation that receives `open_from` (see `earliest_open`); None if the caller
            does not need it.
    """
    if not definition.trigger.fires_early:
        by_cluster = cluster_window(definition)
        fragments = fragments.withColumn("_plain", is_plain(by_cluster)).where("NOT _plain")
    names = names or partial_columns(definition)
    counted, early = _add_ticks(fragments, definition.trigger.early, "early", log)
    counted, late = _add_ticks(counted, definition.trigger.late, "late", log)
    # The order is that of the fields of `Fragment`.
    facts = [
        F.col("_start").alias("start"),
        F.col("_end").alias("end"),
        F.col("arrival"),
        F.col("position"),
        F.col(WATERMARK_BEFORE),
        F.col(WATERMARK_AFTER),
    ]
    facts += early
    facts += late
    part = F.struct(F.struct(facts).alias("_facts"), *names)
    clusters = counted.groupBy(cluster_columns(definition)).agg(
        F.collect_list(part).alias("_parts"), F.max("_end").alias("_end")
    )
    if opened is not None:
        clusters = observe_rows(clusters, opened, earliest_open(definition, current))
    planner = _Planner(definition.trigger, definition.allowed_lateness, accumulation)
    plan = F.udf(planner, _PLAN, useArrow=False)
    all_facts = F.transform("_parts", lambda entry: entry["_facts"])
    firings = plan(all_facts, current.arrival, current.watermark)
    planned = clusters.select(*definition.keys, "_parts", F.explode(firings).alias("_f"))
    return planned.select(_firing_columns(definition, names))


def _firing_columns(definition: Definition, names: list[str]) -> list[Column]:
    """Return the columns of a firing, computed from `_f`, its entry of `_PLAN`, and from `_parts`.

    Args:
        names: the columns of a fragment to return.
    """

    def select_part(index: Column) -> Column:
        part = F.get("_parts", index)
        return F.struct([part[name].alias(name) for name in names])

    def select_parts(indices: Column) -> Column:
        return F.transform(indices, select_part)

    def to_replaced_row(replaced: Column) -> Column:
        return F.struct(
            F.timestamp_micros(replaced["start"]).alias("window_start"),
            F.timestamp_micros(replaced["end"]).alias("window_end"),
            replaced["deleted"].alias("_deleted"),
            select_parts(replaced["members"]).alias("_upto"),
        )

    firing = F.col("_f")
    columns = [
        F.timestamp_micros(firing["start"]).alias("window_start"),
        F.timestamp_micros(firing["end"]).alias("window_end"),
    ]
    columns += [F.col(key) for key in definition.keys]
    columns += [
        firing["pane"].alias("pane"),
        firing["phase"].alias(PHASE),
        firing["fired"].alias(FIRED),
        firing["live"].alias("_live"),
        select_parts(firing["members"]).alias("_upto"),
        select_parts(firing["fresh"]).alias("_fresh"),
        F.transform(firing["replaces"], to_replaced_row).alias("_replaces"),
    ]
    return columns


def partial_columns(definition: Definition) -> list[str]:
    return [VERDICT, "events", "last_arrival", *definition.aggregates]


def _add_ticks(
    stored: DataFrame, firing: Firing, side: str, log: Log
) -> tuple[DataFrame, list[Column]]:
    """Find the arrival at which an interval firing is due for each fragment.

    An `Every` firing is due at the first multiple of its interval after the fragment's arrival.

    Returns:
        The fragments, and two columns over them: the arrival at which the processing clock reached
        that multiple, and the watermark before that arrival. Both columns are null if the clock has
        not reached it yet, or if the firing has no interval.
    """
    names = [f"{side}_at", f"{side}_watermark"]
    if firing.clock_interval is None:
        return stored, [F.lit(None).cast("bigint").alias(name) for name in names]
    due = next_tick(F.col(CLOCK), firing.clock_interval)
    stored = with_tick_arrival(stored, due, firing.clock_interval, side, log.read_ticks)
    return stored, [F.col(f"_{name}").alias(name) for name in names]


@dataclass(frozen=True)
class _Planner:
    """A function that replays one cluster and returns its firings, as entries of `_PLAN`.

    The engine's Python workers call it.
    """

    trigger: Trigger
    lateness: int
    accumulation: str | None

    def __call__(
        self, facts: list[Row], arrival: int, watermark: int | None
    ) -> list[tuple[object, ...]]:
        replay = Replay([Fragment(*times) for times in facts], self.trigger, self.lateness)
        firings = replay.replay_through(arrival, watermark)
        live = replay.find_live_firings()
        current = {(firing.start, firing.end) for firing in live}
        entries: list[tuple[object, ...]] = []
        for firing in firings:
            is_live = firing in live
            replaces = [self._window_change(replaced, current) for replaced in firing.replaces]
            deletes_row = any(is_deleted for _, _, is_deleted, _ in replaces)
            if self.accumulation is None and not is_live and not deletes_row:
                continue
            # A firing includes all earlier fragments of its session. If a session fires often, the
            # lists of all its firings grow quadratically, so list the fragments only if needed.
            needs_members = is_live
            if self.accumulation is not None:
                needs_members = self.accumulation != "discarding"
            members: list[int] = []
            if needs_members:
                members = list(firing.members)
            fresh: list[int] = []
            if self.accumulation == "discarding":
                fresh = list(firing.fresh)
            entry = (
                firing.start,
                firing.end,
                firing.pane,
                firing.phase,
                firing.fired,
                is_live,
                members,
                fresh,
                replaces,
            )
            entries.append(entry)
        return entries

    def _window_change(
        self, firing: Fired, current: set[tuple[int, int]]
    ) -> tuple[int, int, bool, list[int]]:
        """Return the window of a replaced row, whether the row is deleted, and its fragments."""
        is_deleted = (firing.start, firing.end) not in current
        members: list[int] = []
        if self.accumulation == "retracting":
            members = list(firing.members)
        return firing.start, firing.end, is_deleted, members
