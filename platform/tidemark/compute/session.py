"""Sessions in a run: fragments stored, then merged and fired key by key.

The state of a session transform holds *fragments*: the events of one arrival (of one event, where
a trigger counts) that share a span, by key, as partials. What sessions they make, and when these
fire, is worked out from the fragments' facts by `session_replay`, in the engine's Python workers;
the partials themselves stay in the engine.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.rows import completed, merged
from tidemark.compute.session_replay import Fragment, Replay
from tidemark.compute.slot import AsOf
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import Count, Every, Firing, Trigger
from tidemark.store.log import Log, tick

_PLAN = """array<struct<start: bigint, end: bigint, pane: int, phase: int, fired: bigint,
    live: boolean, members: array<int>, fresh: array<int>,
    replaces: array<struct<start: bigint, end: bigint, gone: boolean, members: array<int>>>>>"""


def fragments(
    events: DataFrame, transform: WindowedTransform, log: Log
) -> tuple[DataFrame, list[str], list[Column]]:
    """Judged events, by which columns to add them up, and the facts of each fragment."""
    trigger = transform.trigger
    counts = isinstance(trigger.early, Count) or isinstance(trigger.late, Count)
    facts = [
        F.first(F.unix_micros("watermark")).alias("before"),
        F.first("reached").alias("reached"),
        F.first(F.unix_micros("arrived_at")).alias("clock"),
    ]
    if not counts:
        facts.append(F.min("position").alias("position"))
    events = events.join(F.broadcast(log.reached()), "arrival")
    return events, ["arrival", "position"] if counts else ["arrival"], facts


def firings(stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf) -> DataFrame:
    """Every firing of every session up to `at`.

    Columns: the window and keys; `pane`, `phase`, `fired`; `_upto` and `_fresh`, the partials in it
    and those that are new in it; `_replaces`, the rows whose place it takes, each with its window,
    its partials as `_upto`, and whether no row with its window stands (`_gone`); `_live`, whether
    its own row stands.
    """
    counted = stored.where(F.col("window_start").isNotNull() & F.col("admitted"))
    counted, early = _ticked(counted, transform.trigger.early, "early", log)
    counted, late = _ticked(counted, transform.trigger.late, "late", log)
    names = [c for c in stored.columns if c not in transform.by_window]
    facts = F.struct(
        F.unix_micros("window_start").alias("start"),
        F.unix_micros("window_end").alias("end"),
        *("arrival", "position", "before", "reached"),
        *early,
        *late,
    )
    part = F.struct(facts.alias("facts"), *names)
    by_key = counted.groupBy(*transform.keys).agg(F.collect_list(part).alias("_parts"))
    plan = F.udf(_Planner(transform.trigger, transform.allowed_lateness), _PLAN, useArrow=False)
    planned = by_key.select(
        *transform.keys,
        "_parts",
        F.explode(
            plan(F.transform("_parts", lambda p: p["facts"]), at.arrival, at.watermark)
        ).alias("_f"),
    )

    def members(of: Column) -> Column:
        return F.transform(of, lambda i: F.get("_parts", i))

    def window(of: Column) -> list[Column]:
        return [
            F.timestamp_micros(of["start"]).alias("window_start"),
            F.timestamp_micros(of["end"]).alias("window_end"),
        ]

    f = F.col("_f")
    return planned.select(
        *window(f),
        *transform.keys,
        *(f[name].alias(name) for name in ("pane", "phase", "fired")),
        f["live"].alias("_live"),
        members(f["members"]).alias("_upto"),
        members(f["fresh"]).alias("_fresh"),
        F.transform(
            f["replaces"],
            lambda r: F.struct(
                *window(r), r["gone"].alias("_gone"), members(r["members"]).alias("_upto")
            ),
        ).alias("_replaces"),
    )


def finished(
    stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf, *others: Column
) -> DataFrame:
    """The rows of the sessions that have fired, as they stand."""
    standing = firings(stored, transform, log, at).where("_live")
    return _rows(standing, transform, at, [], *others)


def changes(
    stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf, then: AsOf
) -> DataFrame:
    """What became of the rows of sessions between `then` and `at`.

    Rows that stand and fired, or became final, in between; and with `gone` those that left.
    """
    rows = firings(stored, transform, log, at)
    since = slot.since(transform, then)
    nothing = F.filter("_upto", lambda _: F.lit(False))

    row = F.struct(
        "window_start", "window_end", "pane", "phase", F.lit(False).alias("_gone"), "_upto"
    )
    left = F.transform(
        F.filter("_replaces", lambda r: r["_gone"]),
        lambda r: F.struct(
            *(r[c].alias(c) for c in ("window_start", "window_end")),
            *(F.lit(None).cast("int").alias(c) for c in ("pane", "phase")),
            F.lit(True).alias("_gone"),
            nothing.alias("_upto"),
        ),
    )
    stands = F.col("_live") & (since | slot.became_final(transform, at, then))
    changed = rows.select(
        *transform.keys,
        F.explode(
            F.concat(
                F.filter(F.array(row), lambda _: stands),
                F.filter(left, lambda _: since),
            )
        ).alias("_entry"),
    ).select(*transform.keys, "_entry.*")
    return _rows(changed, transform, at, ["_gone"]).withColumnRenamed("_gone", "gone")


def _rows(
    standing: DataFrame, transform: WindowedTransform, at: AsOf, extra: list[str], *others: Column
) -> DataFrame:
    group = [*transform.by_window, "pane", "phase", *extra]
    parts = standing.select(*group, F.explode_outer("_upto").alias("_part"))
    merge = parts.select(*group, "_part.*").groupBy(*group).agg(*merged(transform), *others)
    return completed(merge.withColumnRenamed("pane", "revision"), transform, at)


def _ticked(
    stored: DataFrame, firing: Firing | None, side: str, log: Log
) -> tuple[DataFrame, list[Column]]:
    """Fragments with the arrival at which an interval's next tick was reached, as facts."""
    names = [f"{side}_at", f"{side}_watermark"]
    if not isinstance(firing, Every):
        return stored, [F.lit(None).cast("bigint").alias(name) for name in names]
    stored = slot.ticked(stored, tick(F.col("clock"), firing.interval), firing, side, log)
    return stored, [F.col(f"_{name}").alias(name) for name in names]


@dataclass(frozen=True)
class _Planner:
    """The engine's workers call it for each key."""

    trigger: Trigger
    lateness: int

    def __call__(
        self, facts: list[Row], arrival: int, watermark: int | None
    ) -> list[tuple[object, ...]]:
        replay = Replay([Fragment(*f) for f in facts], self.trigger, self.lateness)
        firings = replay.through(arrival, watermark)
        live = replay.live()
        standing = {(f.start, f.end) for f in live}
        return [
            (
                *(f.start, f.end, f.pane, f.phase, f.fired, f in live),
                list(f.members),
                list(f.fresh),
                [
                    (r.start, r.end, (r.start, r.end) not in standing, list(r.members))
                    for r in f.replaces
                ],
            )
            for f in firings
        ]
