"""Read the partials of an asset as they are after a commit."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute import rollups
from tidemark.compute.affected.final_windows import find_affected_range, find_final_end
from tidemark.compute.lifecycle import choose_lifecycle
from tidemark.define import classification
from tidemark.define.helper_columns import MARKER
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.engine.queries.planning import Planning
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.conditions import window_starts_in
from tidemark.store.commits.ranges import ALL_WINDOWS, NO_WINDOWS, Ranges, merge_ranges
from tidemark.store.rows import Rows, to_frame


class CommittedState:
    """Reads an asset's partials as they are after a commit, even before the state has the commit.

    Args:
        new_partials: the partials that an increment adds; None if the state already has the commit.
    """

    def __init__(self, asset: Asset, commit_info: CommitInfo, new_partials: Rows | None) -> None:
        self._asset = asset
        self._commit_info = commit_info
        self._new_partials = new_partials

    def read_partials(self, ranges: Ranges) -> DataFrame:
        """Return the partials of windows that start in one of the ranges.

        Without a range, return all partials, including those without a window.
        """
        stored = self._asset.state
        if self._new_partials is None:
            return stored.read_partials(ranges)
        new = to_frame(self._asset.warehouse.spark, self._new_partials).drop(MARKER)
        new = new.where(window_starts_in(ranges).to_sql())
        if self._commit_info.is_first_commit:
            return new
        return stored.read_partials(ranges).unionByName(new)

    def load_partials(self, ranges: Ranges) -> pa.Table | None:
        """Return the partials of windows that start in one of the ranges, in memory.

        Return None if the new partials are not in memory, but in the engine.
        """
        stored = self._asset.state
        new = self._new_partials
        if isinstance(new, DataFrame):
            return None
        if new is None:
            return stored.load_partials(ranges)
        new = new.filter(window_starts_in(ranges).to_expression())
        if self._commit_info.is_first_commit:
            return new
        partials = stored.load_partials(ranges)
        if partials is None:
            return new
        return pa.concat_tables([partials, new.select(partials.column_names).cast(partials.schema)])

    def load_affected_partials(self) -> pa.Table | None:
        """Return the partials of the windows that the commit can change, in memory.

        Return None if the new partials are not in memory, but in the engine.
        """
        return self.load_partials(find_affected_range(self._asset.transform, self._commit_info))

    def read_affected(self, planning: Planning) -> DataFrame:
        """Return the partials of the windows that the commit can change.

        Args:
            planning: the planning mode for merging the partials.
        """
        transform = self._asset.transform
        commit_info = self._commit_info
        coverage_before = commit_info.before
        rows = rollups.assign_windows_within(
            self._asset,
            self.read_partials,
            commit_info.after,
            find_affected_range(transform, commit_info),
        )
        if commit_info.recomputed_ranges is None:
            end = find_final_end(transform, coverage_before)
            if end is not None and not transform.window.merges:
                rows = rows.where(F.unix_micros("window_end") > uncompiled_literal(end))
            if coverage_before.covers:
                newest = uncompiled_literal(commit_info.after.at.arrival)
                rows = rows.where(coverage_before.position_column("arrival") < newest)
        if planning is Planning.FEW:
            return rows
        return choose_lifecycle(transform).repartition_for_merge(rows, transform)

    def find_lacking(self) -> Ranges:
        """Return ranges of window starts that contain all windows that lack events of this commit.

        A window lacks the commit's events that were too late for the window. The ranges are in
        microseconds, and may contain other windows too. `ALL_WINDOWS` and
        `NO_WINDOWS` are possible, too.
        """
        asset = self._asset
        if asset.transform.window.merges:
            return ALL_WINDOWS
        if self._commit_info.recomputed_ranges is not None:
            return self._commit_info.recomputed_ranges
        new = self._new_partials
        if new is None:
            new = asset.state.read_partials_of_commit(self._commit_info.commit_number)
        uncounted = to_frame(asset.warehouse.spark, new).where(classification.is_uncounted())
        starts = uncounted.select(F.unix_micros("window_start")).distinct().collect()
        return merge_ranges((start, start + 1) for (start,) in starts) or NO_WINDOWS
