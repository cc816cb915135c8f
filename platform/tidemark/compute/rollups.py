"""What windows are made of: partials that are stored, or counted anew; a roll-up's are its base's.

Partials of a transform are by its own windows as they are. Those of a roll-up are its base's, which
`larger` places in its windows. A run of a roll-up follows the base's commits that came since the
last one, as one: it publishes the windows that fired meanwhile, and where the base replaced some of
its windows, those that hold them are replaced. All that it publishes is a function of the base's
state, so a run that was killed is simply run again.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.pane import recounted
from tidemark.compute.settled import unsettled
from tidemark.define import verdict as judge
from tidemark.define.definition import Definition
from tidemark.define.rollup import RollUp, counting
from tidemark.store.asset import Asset
from tidemark.store.conditions import started
from tidemark.store.coverage import Cover, Coverage
from tidemark.store.log import Log
from tidemark.store.marker import Marker, Mode
from tidemark.store.ranges import EVERYTHING, Ranges, joined
from tidemark.store.state import by_verdict
from tidemark.store.warehouse import Warehouse


def plan(asset: Asset) -> tuple[Marker, Counter[int]] | None:
    """What a run of a roll-up has to publish, and the events that are new, by verdict.

    Returns:
        None where the base has committed nothing since.

    Raises:
        DataError: the base has not run yet.
    """
    warehouse, transform = asset.warehouse, asset.transform
    assert isinstance(transform, RollUp)
    started, base = time.time_ns() // 1000, transform.base
    if asset.state.life() is None:
        raise DataError(
            f"'{transform.name}' is a roll-up of '{base.name}', which has not run yet: run "
            f"`tidemark run {base.name}` first."
        )
    place = asset.published()
    commits = asset.state.since(place)
    if not commits:
        return None
    before, after = coverage(transform, commits[0].before), coverage(transform, commits[-1].after)
    ranges = _replaced(transform, before, commits)
    if place < 0 and warehouse.exists(transform.table):
        # What is there was made of another life of the base, or is of another kind.
        ranges = EVERYTHING
    marker = Marker(
        run=uuid.uuid4().hex,
        started=started,
        mode=Mode.ROLLUP,
        seq=commits[-1].seq,
        before=before,
        after=after,
        ranges=ranges,
    )
    new = asset.state.read().where((F.col("seq") > place) & (F.col("seq") <= marker.seq))
    return marker, by_verdict(larger(warehouse, transform, new.where("admitted"), after))


def placed_within(
    asset: Asset, rows_of: Callable[[Ranges], DataFrame], through: Coverage, ranges: Ranges
) -> DataFrame:
    """The partials of an asset's windows that start in one of the ranges.

    Args:
        rows_of: the partials that are stored of windows that start in some ranges.
        through: what they are complete through.
    """
    rows = rows_of(held(asset.transform, ranges))
    placed_rows = placed(asset.warehouse, asset.transform, rows, through)
    return placed_rows.where(started(ranges).sql())


def counted(
    warehouse: Warehouse,
    transform: Definition,
    through: Coverage,
    ranges: Ranges,
    *,
    complete: bool = False,
) -> DataFrame:
    """Partials counted anew from the log, in a pass that knows nothing of the state; of a roll-up,
    those of its base's windows.

    Args:
        complete: whether too-late events count.
    """
    ranges = held(transform, ranges)
    own = replace(counting(transform), aggregates=transform.aggregates, expectations=())
    log = Log(warehouse, transform.source)
    return recounted(log, own, through, ranges, complete=complete)


def held(transform: Definition, ranges: Ranges) -> Ranges:
    """Where those windows start of which the ones are made that start in the ranges."""
    if not isinstance(transform, RollUp):
        return ranges
    return tuple((start, min(end + transform.window.reach, INFINITY)) for start, end in ranges)


def placed(
    warehouse: Warehouse, transform: Definition, rows: DataFrame, through: Coverage
) -> DataFrame:
    """Partials, stored or counted anew, by the transform's own windows."""
    if not isinstance(transform, RollUp):
        return rows
    return larger(warehouse, transform, rows, through)


def larger(
    warehouse: Warehouse, transform: RollUp, rows: DataFrame, through: Coverage
) -> DataFrame:
    """Those partials of the base that count, as a roll-up's: by its windows, and judged for them.

    Late ones are of one arrival each, so the watermark before it is known.

    Args:
        through: what the roll-up is complete through; what came late after it is left out.
    """
    timeline = warehouse.read(transform.source.timeline_table)
    came = (F.col("arrival") + 1).alias("_came")
    before = timeline.select(came, F.col("watermark_before").alias("_before"))
    punctual = F.col("verdict") == judge.ON_TIME
    base = {name: f"_{name}" for name in ("window_start", "window_end")}
    own = rows.where("admitted").withColumnsRenamed(base)
    moved = transform.window.assign(own, base["window_start"]).drop(*base.values())
    late = ~punctual & (F.col("slot") == F.col("_came"))
    anew = judge.verdict(F.col("window_end"), F.col("_before"), transform.allowed_lateness)
    verdict = F.when(punctual, F.col("verdict")).otherwise(anew)
    slot = F.when(verdict == judge.ON_TIME, 0).otherwise(F.col("slot"))
    return (
        moved.join(F.broadcast(before), late, "left")
        .where(punctual | (F.col("slot") - 1 <= through.pick("arrival")))
        .withColumns({"verdict": verdict, "slot": slot.cast("bigint")})
        .drop("_came", "_before")
    )


def covered_by(transform: Definition, commit: Marker) -> Coverage:
    """Through which arrival each window is complete that a commit of the state has published."""
    if isinstance(transform, RollUp):
        return coverage(transform, commit.after) if commit.seq >= 0 else Coverage()
    return commit.after


def coverage(transform: RollUp, base: Coverage) -> Coverage:
    """Through which arrival each larger window is complete: all that it holds is that far."""
    # The base's last window of a range may end behind it.
    closing = transform.base.window.closing
    ahead = [*_touching(base.covers), *base.covers]
    return Coverage(base.at, tuple(replace(c, end=closing(c.end)) for c in ahead), whole=True)


def _touching(covers: Sequence[Cover]) -> list[Cover]:
    """Covers that touch, as one that is as far as the one that is least far."""
    joint: list[Cover] = []
    for c in sorted(covers, key=lambda c: c.start):
        if joint and joint[-1].end == c.start:
            last = joint.pop()
            at = min(last.at, c.at, key=lambda p: p.arrival)
            c = Cover(last.start, c.end, at)
        joint.append(c)
    return joint


def _replaced(transform: RollUp, before: Coverage, commits: Sequence[Marker]) -> Ranges:
    """The starts of the windows to replace: none, or those that hold what the base replaced and
    those that may have fired as well."""
    replacing = [c for c in commits if c.replaces]
    if not replacing:
        return ()
    fired = unsettled(transform, before)
    if not fired or not all(c.ranges for c in replacing):
        return EVERYTHING
    reach = transform.window.reach - 1
    holding = [(max(s - reach, BEGINNING), e) for c in replacing for s, e in c.ranges]
    return joined([*fired, *holding])
