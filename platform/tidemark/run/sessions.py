"""Session-only parts of a run: merge recomputed sessions row by row, and find open sessions."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute.affected.closed_windows import closed_end
from tidemark.compute.compare import same_window
from tidemark.compute.lifecycle import clusters, session
from tidemark.compute.materialize import TempTables
from tidemark.compute.pane import as_of
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import IS_DELETED
from tidemark.quality import quarantine
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.kinds import SessionReplacement
from tidemark.store.rows import Rows, frame


def merge_sessions(
    asset: Asset,
    marker: SessionReplacement,
    rows: DataFrame,
    scratch: TempTables,
    *,
    all_fire_once: bool,
    few: bool,
) -> DataFrame:
    """Return the current sessions near the commit's ranges, and the earlier rows that they replace.

    `IS_DELETED` is true for an earlier row near the ranges whose session no longer exists.

    Args:
        few: true if the current sessions fit into memory.
    """
    warehouse, transform, near = asset.warehouse, asset.transform, marker.ranges
    at = as_of(marker.after)
    found = session.finish_windows(
        rows, transform, asset.log, at, all_fire_once=all_fire_once, near=near
    )
    current = scratch.materialize_frame(found, few=few)
    earlier = quarantine.read_computed(warehouse, transform, ())
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    earlier = earlier.where(clusters.touches_ranges(start, end, transform, near))
    same = same_window(transform, "e", "s")
    left = earlier.alias("e").join(current.alias("s"), same, "left_anti")
    return current.withColumn(IS_DELETED, F.lit(False)).unionByName(
        left.drop(*{*left.columns} - {*current.columns}).withColumn(IS_DELETED, F.lit(True)),
        allowMissingColumns=True,
    )


def find_open_from(asset: Asset, marker: CommitInfo, partials: Rows) -> int | None:
    """Return, for a commit that replaces windows by `partials`, the start of the first session that
    later arrivals can still change. None means no bound: every session can change. The result is
    also None if the windows do not merge.
    """
    transform = asset.transform
    if not transform.window.merges:
        return None
    if isinstance(marker, SessionReplacement):
        return marker.open_from
    if marker.after.at.watermark == INFINITY:
        return closed_end(transform, marker.after)
    rows = frame(asset.warehouse.spark, partials)
    found = session.find_open_from(rows, transform, as_of(marker.after)).collect()
    return find_first_open(transform, marker, found[0].asDict())


def find_first_open(
    transform: Definition, marker: CommitInfo, observed: Mapping[str, int | None]
) -> int | None:
    """Return the start of the first session that later arrivals can still change.

    None means no bound.

    Args:
        observed: the engine's observation of the existing sessions.
    """
    begin = closed_end(transform, marker.after)
    # The engine may have optimized the observation away. Nothing is known then.
    if begin is None or "open_from" not in observed:
        return None
    # A later event may also start a new session, no earlier than `begin`.
    earliest = observed["open_from"]
    return begin if earliest is None else min(earliest, begin)
