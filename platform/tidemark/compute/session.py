"""Sessions in a run: fragments merged and fired cluster by cluster.

Fragments (`fragments`) that touch form a cluster (`clusters`). Where nothing can have fired before
all of a cluster was there, the engine merges it to its one session. What sessions the others made
meanwhile, and when these fired, is worked out from the fragments' facts by `session_replay`, in the
engine's Python workers; the partials themselves stay in the engine.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.clusters import FROM, clustered, plain, touching, whole
from tidemark.compute.rows import completed, merged
from tidemark.compute.session_replay import Firing as Fired
from tidemark.compute.session_replay import Fragment, Replay
from tidemark.compute.slot import AsOf
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import Every, Firing, Trigger
from tidemark.define.windows import Session
from tidemark.store.log import Log, tick
from tidemark.store.ranges import Ranges

_PLAN = """array<struct<start: bigint, end: bigint, pane: int, phase: int, fired: bigint,
    live: boolean, members: array<int>, fresh: array<int>,
    replaces: array<struct<start: bigint, end: bigint, gone: boolean, members: array<int>>>>>"""


def firings(stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf) -> DataFrame:
    """Every firing of every session up to `at`, as panes need them.

    Columns: the window and keys; `pane`, `phase`, `fired`; `_upto` and `_fresh`, the partials in it
    and those that are new in it; `_replaces`, the rows whose place it takes, each with its window
    and its partials as `_upto`. What the accumulation does not ask for is left empty.
    """
    fragments = clustered(stored, transform)
    replayed = _replayed(fragments, transform, log, at, accumulation=transform.accumulation)
    if transform.trigger.early is not None:
        return replayed
    parts = F.collect_list(F.struct(*_partial_columns(transform)))
    new = _merged_plainly(_clusters(fragments, transform, parts.alias("_upto")), at)
    row = F.struct("window_start", "window_end", F.lit(False).alias("_gone"), "_upto")
    nothing = F.filter(F.array(row), lambda _: F.lit(False))
    new = new.withColumns(
        {"_live": F.lit(True), "_fresh": F.col("_upto"), "_replaces": nothing},
    )
    return new.unionByName(replayed)


def finished(
    stored: DataFrame,
    transform: WindowedTransform,
    log: Log,
    at: AsOf,
    *others: Column,
    all_plain: bool = False,
    near: Ranges = (),
) -> DataFrame:
    """The rows of the sessions that have fired, as they stand.

    Args:
        others: further aggregate expressions over the partials that count.
        all_plain: whether it is known that all clusters are plain.
        near: of clusters that fragments in these ranges may touch; of all by default.
    """
    fragments = clustered(stored, transform)
    if near:
        end = F.max("_end").over(whole(transform))
        fragments = fragments.withColumn("_until", end)
        fragments = fragments.where(touching(F.col(FROM), F.col("_until"), transform, near))
    if all_plain:
        clusters = _clusters(fragments, transform, *merged(transform), *others)
        rows = _merged_plainly(clusters, at).drop("fired")
        return completed(rows.withColumnRenamed("pane", "revision"), transform, at)
    names = [c for c in stored.columns if c not in transform.by_window] if others else None
    standing = _replayed(fragments, transform, log, at, names=names).where("_live")
    rows = _rows(standing, transform, [], *others)
    if transform.trigger.early is None:
        clusters = _clusters(fragments, transform, *merged(transform), *others)
        rows = _merged_plainly(clusters, at).drop("fired").unionByName(rows)
    return completed(rows.withColumnRenamed("pane", "revision"), transform, at)


def changes(
    stored: DataFrame,
    transform: WindowedTransform,
    log: Log,
    at: AsOf,
    then: AsOf,
    *,
    opened: Observation | None = None,
    all_plain: bool = False,
) -> DataFrame:
    """What became of the rows of sessions between `then` and `at`.

    Rows that stand and fired, or became final, in between; and with `gone` those that left.

    Args:
        opened: is to observe `open_from`, as `open_from` has it.
        all_plain: whether it is known that all clusters are plain.
    """
    fragments = clustered(stored, transform)
    since, final = slot.since(transform, then), slot.became_final(transform, at, then)
    found: list[DataFrame] = []
    if transform.trigger.early is None:
        clusters = _clusters(fragments, transform, *merged(transform))
        if opened is not None:
            clusters = clusters.observe(opened, _open_from(transform, at))
            opened = None
        new = _merged_plainly(clusters, at).where(since | final).drop("fired")
        found.append(new.withColumn("_gone", F.lit(False)))
    if not all_plain:
        rows = _replayed(fragments, transform, log, at, opened=opened)
        found.append(_rows(_moved(rows, transform, since, final), transform, ["_gone"]))
    renamed = reduce(DataFrame.unionByName, found).withColumnsRenamed(
        {"pane": "revision", "_gone": "gone"}
    )
    return completed(renamed, transform, at)


def _moved(
    rows: DataFrame, transform: WindowedTransform, since: Column, final: Column
) -> DataFrame:
    """Of replayed firings, the rows that stand and moved, and with `_gone` those that left."""
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
    stands = F.col("_live") & (since | final)
    entries = F.concat(F.filter(F.array(row), lambda _: stands), F.filter(left, lambda _: since))
    return rows.select(*transform.keys, F.explode(entries).alias("_entry")).select(
        *transform.keys, "_entry.*"
    )


def open_from(stored: DataFrame, transform: WindowedTransform, at: AsOf) -> DataFrame:
    """One row with `open_from`, BIGINT microseconds: where the first session starts that events of
    arrivals after `at` can still change; null where there is none.

    Such an event is not later than the allowed lateness: it lies after the watermark by less than
    that and a gap, and joins sessions that end there or later.
    """
    fragments = clustered(stored, transform)
    clusters = fragments.groupBy(*transform.keys, FROM).agg(F.max("_end").alias("_end"))
    return clusters.agg(_open_from(transform, at))


def _open_from(transform: WindowedTransform, at: AsOf) -> Column:
    assert isinstance(transform.window, Session)
    settled = at.watermark - F.lit(transform.allowed_lateness + transform.window.gap)
    can_change = F.coalesce(F.col("_end") > settled, F.lit(True))
    return F.min(F.when(can_change, F.col(FROM))).alias("open_from")


def _clusters(fragments: DataFrame, transform: WindowedTransform, *columns: Column) -> DataFrame:
    """Clusters with their `_end`, whether each is `_plain`, and what is asked for of their
    fragments."""
    return fragments.groupBy(*transform.keys, FROM).agg(
        F.max("_end").alias("_end"), plain().alias("_plain"), *columns
    )


def _merged_plainly(clusters: DataFrame, at: AsOf) -> DataFrame:
    """The firings of plain clusters: each is one session, which fires once."""
    fired = clusters.where(F.col("_plain") & (F.col("_end") <= at.watermark))
    return fired.withColumns(
        {
            "window_start": F.timestamp_micros(FROM),
            "window_end": F.timestamp_micros("_end"),
            "pane": F.lit(0),
            "phase": F.lit(slot.ON_TIME),
            "fired": F.lit(None).cast("bigint"),
        }
    ).drop(FROM, "_end", "_plain")


def _replayed(
    fragments: DataFrame,
    transform: WindowedTransform,
    log: Log,
    at: AsOf,
    *,
    accumulation: str | None = None,
    names: list[str] | None = None,
    opened: Observation | None = None,
) -> DataFrame:
    """The firings of the clusters that are not plain, as `firings` has them.

    Adds `_live`, whether a firing's own row stands, and to `_replaces` whether no row with that
    window stands (`_gone`).

    Args:
        accumulation: of panes; without, only what stands has `_upto`, and firings that neither
            stand nor made another leave may be missing.
        names: the columns of a partial; by default what is merged.
        opened: is to observe `open_from`.
    """
    if transform.trigger.early is None:
        by_cluster = whole(transform)
        fragments = fragments.withColumn("_plain", plain(by_cluster)).where("NOT _plain")
    names = names or _partial_columns(transform)
    counted, early = _ticked(fragments, transform.trigger.early, "early", log)
    counted, late = _ticked(counted, transform.trigger.late, "late", log)
    facts = F.struct(
        F.col("_start").alias("start"),
        F.col("_end").alias("end"),
        *("arrival", "position", "before", "reached"),
        *early,
        *late,
    )
    part = F.struct(facts.alias("facts"), *names)
    clusters = counted.groupBy(*transform.keys, FROM).agg(
        F.collect_list(part).alias("_parts"), F.max("_end").alias("_end")
    )
    if opened is not None:
        clusters = clusters.observe(opened, _open_from(transform, at))
    planner = _Planner(transform.trigger, transform.allowed_lateness, accumulation)
    plan = F.udf(planner, _PLAN, useArrow=False)
    planned = clusters.select(
        *transform.keys,
        "_parts",
        F.explode(
            plan(F.transform("_parts", lambda p: p["facts"]), at.arrival, at.watermark)
        ).alias("_f"),
    )

    def members(of: Column) -> Column:
        return F.transform(
            of, lambda i: F.struct(*(F.get("_parts", i)[name].alias(name) for name in names))
        )

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


def _partial_columns(transform: WindowedTransform) -> list[str]:
    return ["verdict", "events", "last_arrival", *transform.aggregates]


def _rows(
    standing: DataFrame, transform: WindowedTransform, extra: list[str], *others: Column
) -> DataFrame:
    group = [*transform.by_window, "pane", "phase", *extra]
    parts = standing.select(*group, F.explode_outer("_upto").alias("_part"))
    return parts.select(*group, "_part.*").groupBy(*group).agg(*merged(transform), *others)


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
    """The engine's workers call it for each cluster."""

    trigger: Trigger
    lateness: int
    accumulation: str | None

    def __call__(
        self, facts: list[Row], arrival: int, watermark: int | None
    ) -> list[tuple[object, ...]]:
        replay = Replay([Fragment(*f) for f in facts], self.trigger, self.lateness)
        firings = replay.through(arrival, watermark)
        live = replay.live()
        standing = {(f.start, f.end) for f in live}
        found: list[tuple[object, ...]] = []
        for f in firings:
            # Each firing has all that came before it in its session: to list that for every one
            # would be without end for a session that fires often, where nobody asks for it.
            upto = f in live if self.accumulation is None else self.accumulation != "discarding"
            replaces = [self._replaced(r, standing) for r in f.replaces]
            if self.accumulation is None and not upto and not any(r[2] for r in replaces):
                continue
            found.append(
                (
                    *(f.start, f.end, f.pane, f.phase, f.fired, f in live),
                    list(f.members) if upto else [],
                    list(f.fresh) if self.accumulation == "discarding" else [],
                    replaces,
                )
            )
        return found

    def _replaced(
        self, firing: Fired, standing: set[tuple[int, int]]
    ) -> tuple[int, int, bool, list[int]]:
        window = (firing.start, firing.end)
        members = list(firing.members) if self.accumulation == "retracting" else []
        return *window, window not in standing, members
