"""Collect the evidence for validating rows: earlier rows of the same windows, and the event log."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING
from tidemark.compute import rollups, windowing
from tidemark.compute.affected.final_windows import find_affected_range, find_final_end
from tidemark.compute.compare import same_window
from tidemark.compute.materialize import TempTables
from tidemark.define import aggregates as agg
from tidemark.define import classification
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import Expectation, Windowed
from tidemark.define.expectations.general import General
from tidemark.define.helper_columns import ADMITTED, VERDICT
from tidemark.engine.queries.planning import Planning
from tidemark.quality import gx
from tidemark.quality.gx import ROW
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges
from tidemark.store.rows import Rows, to_frame

KEYS = "_keys"
"""The column with the keys of a validated row as JSON."""

UNPUBLISHED = (ROW, KEYS, OVERFLOWED, SLACK)
"""The columns that rows have only during their validation, and that are not published."""


@dataclass(frozen=True)
class Batch:
    """The rows of one commit, with the evidence for validating them.

    Args:
        commit_info: the record of the commit.
        scratch: temporary tables for the rows that are computed for validation.
        few: true if there are few rows.
        few_events: true if there are few events to count in the event log.
        planning: the engine's planning mode for counting these events.
        counting: the recount of the events from the event log, if the recount has started.
        guarded: false if the rows do not need validation.
        overflowed: true if a value of a row exceeds its type.
        rows: the rows of the commit in the engine, while the engine validates them; otherwise None.
    """

    asset: Asset
    commit_info: CommitInfo
    scratch: TempTables
    few: bool
    few_events: bool
    planning: Planning
    counting: Future[Rows] | None = None
    guarded: bool = False
    overflowed: bool = False
    rows: DataFrame | None = None

    @property
    def transform(self) -> Definition:
        return self.asset.transform

    @property
    def expectations(self) -> Sequence[Expectation]:
        """The expectations by which the rows are validated.

        These are the declared expectations. `values_fit()` is added if a value exceeds its type. It
        is also added if no expectation is declared and an aggregate can exceed its type.
        """
        declared = self.transform.expectations
        if declared and not self.overflowed:
            return declared
        return self.transform.all_expectations

    @property
    def replaces_rows(self) -> bool:
        return self.commit_info.replaced_ranges is not None

    def published_rows(self, back: int = 0) -> DataFrame:
        return self._read_rows(self.transform.published_table, back)

    def quarantined_rows(self, back: int = 0) -> DataFrame:
        return self._read_rows(self.transform.quarantine_table, back)

    @property
    def unvalidated_rows(self) -> DataFrame:
        assert self.rows is not None
        return self.rows

    @property
    def recounted_events(self) -> DataFrame:
        counted = self._count_again() if self.counting is None else self.counting.result()
        return to_frame(self.asset.warehouse.spark, counted)

    @contextmanager
    def prepare_validation(self) -> Iterator["Batch"]:
        """Prepare the validation while the caller computes the rows. Yield the prepared batch.

        If an expectation compares the rows with the event log, recount the events. If an
        expectation needs Great Expectations, import Great Expectations in the background.
        """
        expectations = self.transform.expectations
        if any(isinstance(e, General) for e in expectations):
            self.asset.warehouse.run_in_background(gx.import_library)
        if not any(isinstance(e, Windowed) and e.confirmed for e in expectations):
            yield self
            return
        if not self.few:
            # With many rows, the recount and the run would each need the whole engine, so the
            # recount comes first.
            yield self.recount_events()
            return
        counting = self.asset.warehouse.run_in_background(self._count_again)
        try:
            yield replace(self, counting=counting)
        finally:
            wait([counting])

    def recount_events(self) -> "Batch":
        """Return the batch with a new, independent count of the events in the event log."""
        counted = Future[Rows]()
        counted.set_result(self._count_again())
        return replace(self, counting=counted)

    def _count_again(self) -> Rows:
        with self.asset.warehouse.use_planning(self.planning):
            recountable = self._select_recountable()
            return self.scratch.materialize(recountable, few=self.few_events)

    def _select_recountable(self) -> DataFrame:
        transform = self.transform
        commit_info = self.commit_info
        asset = self.asset
        # Any aggregate works, because only the events are counted.
        aggregate = next(iter(transform.aggregates))
        counting = replace(transform, aggregates={aggregate: agg.count()}, expectations=())
        through = commit_info.after
        ranges = self.find_ranges()
        complete = commit_info.counts_all_events and commit_info.late_events == "include"
        partials = rollups.recount_partials(
            asset.warehouse, counting, through, ranges, complete=complete
        )
        if not commit_info.counts_all_events:
            # The state may hold too-late events that an earlier backfill or correction admitted.
            # Such events are not a fault.
            was_admitted = (F.col(VERDICT) == classification.TOO_LATE) & F.col(ADMITTED)
            if commit_info.commit_number > 0 and asset.state.table_id() is not None:
                state = asset.state.read_partials(
                    rollups.find_base_ranges(transform, ranges)
                ).where(was_admitted)
                counted = state.withColumn(aggregate, F.col("events"))
                partials = partials.unionByName(counted, allowMissingColumns=True)
        partials = rollups.assign_windows(asset.warehouse, counting, partials, through)
        windows = windowing.finish_windows(partials, counting, asset.log, windowing.as_of(through))
        if transform.window.merges and ranges:
            # Leave out sessions that ended by `end`: they can't have changed, and if they began
            # before the ranges, they were recounted only in part.
            end = find_final_end(transform, commit_info.before)
            windows = windows.where(f"window_end > timestamp_micros({end})")
        return windows.select(*transform.by_window, "events")

    def same_window(self, left_alias: str, right_alias: str) -> Column:
        return same_window(self.transform, left_alias, right_alias)

    def find_ranges(self, back: int = 0) -> Ranges:
        """Return the ranges that contain the starts of all windows that the commit can change.

        Each range begins `back` microseconds earlier than necessary. Return `ALL_WINDOWS` if the
        commit can change all windows.
        """
        ranges = find_affected_range(self.transform, self.commit_info)
        return tuple((max(start - back, BEGINNING), end) for start, end in ranges)

    def _read_rows(self, table: str, back: int) -> DataFrame:
        """Return the existing rows of a table for the windows that the commit can change.

        Return no rows if they are from another definition, with other columns.

        Args:
            back: how much earlier to begin each range of windows, in microseconds.
        """
        rows = self.asset.warehouse.read_frame(
            table, InRanges("window_start", self.find_ranges(back))
        )
        # Only a commit that replaces all rows can follow commits of another definition.
        if self.commit_info.overwritten_ranges != ALL_WINDOWS:
            return rows
        validated_types = dict(self.unvalidated_rows.dtypes)
        stored_types = dict(rows.dtypes)
        names = rows.columns
        declared = set(self.transform.keys) | set(self.transform.aggregates)
        stored_columns = names[names.index("window_end") + 1 : names.index("events")]
        declared_types = {name: kind for name, kind in validated_types.items() if name in declared}
        if {name: stored_types[name] for name in stored_columns} == declared_types:
            return rows
        columns = [F.col("*")]
        for name in names:
            if name not in validated_types:
                columns.append(F.lit(None).cast(stored_types[name]).alias(name))
        return self.unvalidated_rows.where("false").select(columns)
