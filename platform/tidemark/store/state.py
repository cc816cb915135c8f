"""Store an asset's state: the partials of its windows, and through which arrival they are up to
date.

A run appends the partials of its arrivals, and readers merge the partials of a window. Each commit
also writes a marker row, which holds the commit's `CommitInfo`: the arrivals that it covers, the
affected windows, and the resulting coverage. Commits are numbered without gaps by `commit_number`,
which is also the version of their Delta transaction. A commit whose number exists already is
refused, so only one of two runs that start from the same coverage can count its events.

A state has an identity (`table_id`) from its creation until it is dropped. The ledger, the check
results and the transactions of other tables refer to a commit by that identity and the commit's
number. A recreated state is therefore not mistaken for the one that was dropped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import ConflictError
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import FIRST_EVENTS, MARKER, VERDICT
from tidemark.define.identity.parts import Part
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.commits.commit_info import CommitInfo, StateCommit
from tidemark.store.commits.conditions import Condition, number_in, number_is, window_starts_in
from tidemark.store.commits.kinds import NO_COMMIT, from_json, to_json
from tidemark.store.commits.ranges import Ranges, starts_within
from tidemark.store.epoch import Epoch, ErasedMeanwhileError, epoch_app
from tidemark.store.integrity import vouching
from tidemark.store.rows import Rows, arrow_schema, delta_schema
from tidemark.store.warehouse import Warehouse

_FORGOTTEN = "forgotten"
"""The application id that records which backups do not exist any more."""


class State:
    """Reads and writes the state table of an asset: partials, and the records of commits.

    Args:
        last_commit_number: the number of the newest commit whose partials are read; None for all
            commits. Windows that later commits replaced are then missing, because a replacement
            deletes their earlier partials. The other windows are as of that commit, because an
            increment only appends.
    """

    def __init__(
        self, warehouse: Warehouse, transform: Definition, last_commit_number: int | None = None
    ) -> None:
        self.warehouse = warehouse
        self.table = transform.state_table
        self._conditions: Sequence[Condition] = ()
        if last_commit_number is not None:
            self._conditions = [number_in("commit_number", 0, last_commit_number + 1)]
        self._arrivals_app = vouching.arrivals_app(transform.source)
        self._counted = counted_column(transform)

    @classmethod
    def from_table(cls, warehouse: Warehouse, table: str) -> "State":
        """Return the state in a table.

        It has no transform, so its `store_commit` and `count_events` fail.
        """
        state = cls.__new__(cls)
        state.warehouse = warehouse
        state.table = table
        state._conditions = ()
        return state

    def table_id(self) -> str | None:
        """Return the identity of the state; None if it does not exist."""
        head = self.warehouse.find_head(self.table)
        if head is None:
            return None
        return head.table_id

    def read_partials(self, ranges: Ranges = ()) -> DataFrame:
        """Return the partials of windows that start in one of the ranges, without the markers.

        Without ranges, return all partials.
        """
        rows = self.warehouse.read_frame(self.table, window_starts_in(ranges), *self._conditions)
        return rows.where(f"{MARKER} IS NULL").drop(MARKER)

    def max_partial_count(self, ranges: Ranges = ()) -> int:
        """Return an upper bound of the number of partials that `read_partials` returns."""
        return self.warehouse.max_row_count(self.table, window_starts_in(ranges), *self._conditions)

    def load_partials(self, ranges: Ranges = ()) -> pa.Table:
        """Return the partials of `read_partials`, in memory, with the column `MARKER`, all null."""
        rows = self.warehouse.load_rows(self.table, window_starts_in(ranges), *self._conditions)
        return rows.filter(rows[MARKER].is_null())

    def read_last_commit(self) -> StateCommit:
        """Return the record of the newest commit; without one, `NO_COMMIT`, whose number is -1."""
        with self.warehouse.pin_version(self.table):
            return self.read_commit(
                self.warehouse.transaction_version(self.table, vouching.STATE_APP)
            )

    def read_commit(self, commit_number: int) -> StateCommit:
        """Return the record of a commit; for a negative number, `NO_COMMIT`."""
        if commit_number < 0:
            return NO_COMMIT
        return self._read_commits(commit_number, commit_number + 1)[0]

    def find_commit(self, commit_number: int) -> StateCommit | None:
        """Return the record of a commit; None if the state does not have it."""
        commits = self._read_commits(commit_number, commit_number + 1)
        if not commits:
            return None
        return commits[0]

    def read_commits_after(self, commit_number: int) -> list[StateCommit]:
        """Return the records of the commits with numbers after `commit_number`, in order."""
        with self.warehouse.pin_version(self.table):
            newest = self.warehouse.transaction_version(self.table, vouching.STATE_APP)
            if newest <= commit_number:
                return []
            return self._read_commits(commit_number + 1, newest + 1)

    def ensure_table(self, partials: Rows) -> str:
        """Create the table if it does not exist, and return its identity.

        Args:
            partials: rows that have the table's columns, including `commit_number`. They are not
                written.
        """
        self.warehouse.ensure_table(self.table, partials, f"State of the windows: {self.table}")
        table_id = self.table_id()
        assert table_id is not None
        return table_id

    def store_commit(self, partials: Rows, commit_info: StateCommit, epoch: Epoch) -> None:
        """Store a run's partials and the record of its commit.

        Args:
            partials: rows with the columns that `ensure_table` was given, and with the commit's
                `commit_number`.
            epoch: the epoch in which the run began.

        Raises:
            ErasedMeanwhileError: the source's events were erased, or the state was dropped, since
                the run began; nothing was stored.
            ConflictError: another run committed first; nothing was stored.
        """
        with self.warehouse.pin_version(self.table):
            if self.table_id() != epoch.state_id:
                raise ErasedMeanwhileError(self.table)
            written_rows = self._store_if_next(partials, commit_info, epoch)
        if written_rows is None:
            raise ConflictError(
                f"Another run wrote '{self.table}' at the same time. Run the command again."
            )

    def _store_if_next(self, partials: Rows, commit_info: StateCommit, epoch: Epoch) -> int | None:
        """Store a commit as `store_commit` does. Return None if another run came first."""
        number = commit_info.commit_number
        if self.warehouse.transaction_version(self.table, vouching.STATE_APP) != number - 1:
            return None
        commits = [commit_info]
        if commit_info.replaces_all:
            # All rows are replaced, but the records of earlier commits are kept.
            commits = [*self.read_commits_after(-1), commit_info]
        marker_rows = _create_marker_rows(commits, arrow_schema(delta_schema(partials.schema)))
        vouches = {self._arrivals_app: commit_info.after.newest_arrival}
        ranges = commit_info.recomputed_ranges
        if ranges is None:
            return self.warehouse.append_rows(
                partials,
                self.table,
                vouching.STATE_APP,
                number,
                further_rows=marker_rows,
                vouches=vouches,
                epoch=epoch,
            )
        replaced = "TRUE"
        if ranges:
            is_replaced = f"{starts_within(ranges)} AND {MARKER} IS NULL"
            replaced = f"({is_replaced}) OR commit_number = {number}"
        return self.warehouse.replace_rows(
            partials,
            self.table,
            replaced,
            vouching.STATE_APP,
            number,
            further_rows=marker_rows,
            vouches=vouches,
            epoch=epoch,
        )

    def count_erasures(self) -> int:
        """Return how often erasures have fenced the state (`store.epoch`); 0 without a table."""
        with self.warehouse.pin_version(self.table):
            table_id = self.table_id()
            if table_id is None:
                return 0
            return max(self.warehouse.transaction_version(self.table, epoch_app(table_id)), 0)

    def forget_backup(self, commit_number: int) -> None:
        """Record that the backup of a promotion, with this commit number, no longer exists."""
        nothing = self.warehouse.read_schema(self.table).empty_table()
        self.warehouse.append_rows(nothing, self.table, _FORGOTTEN, commit_number)

    def newest_forgotten_backup(self) -> int:
        """Return the commit number of the newest promotion in `forget_backup`; -1 if none."""
        return self.warehouse.transaction_version(self.table, _FORGOTTEN)

    def recorded_parts(self, commit_info: StateCommit) -> Mapping[str, Part]:
        """Return the parts of the definition that made a commit; empty before the first commit."""
        return self.read_commit(commit_info.defined).parts or {}

    def count_events(self, commit_info: CommitInfo) -> Counter[int]:
        """Return the number of events of an earlier commit, by class of lateness."""
        columns = [VERDICT, self._counted, MARKER]
        rows = self.warehouse.load_rows(
            self.table,
            number_is("commit_number", commit_info.commit_number),
            columns=columns,
        )
        return count_by_verdict(rows.filter(rows[MARKER].is_null()), self._counted)

    def read_partials_of_commit(self, commit_number: int) -> DataFrame:
        rows = self.warehouse.read_frame(self.table, number_is("commit_number", commit_number))
        return rows.where(f"{MARKER} IS NULL").drop(MARKER)

    def _read_commits(self, start: int, end: int) -> list[StateCommit]:
        columns = ["commit_number", MARKER]
        rows = self.warehouse.load_rows(
            self.table, number_in("commit_number", start, end), columns=columns
        )
        markers = rows.filter(rows[MARKER].is_valid()).sort_by("commit_number")
        return [from_json(text) for text in markers[MARKER].to_pylist()]


def with_commit_number(partials: DataFrame, commit_number: int) -> DataFrame:
    """Return partials as the state stores them: with their commit's number and a null marker."""
    # Both columns go first: Delta keeps statistics only for the first 32 columns.
    return partials.select(
        uncompiled_literal(commit_number).alias("commit_number"),
        F.lit(None).cast("string").alias(MARKER),
        "*",
    )


def counted_column(transform: Definition) -> str:
    """Return the column of partials that counts each event once, even if windows overlap.

    An event counts in only one of its windows: the one that ends first.
    """
    return FIRST_EVENTS if transform.window.overlaps else "events"


def count_by_verdict(partials: Rows, column: str) -> Counter[int]:
    """Return the number of events in partials, by class of lateness; each event counts once.

    A class that no partial has is missing from the result. If windows overlap, a class can have 0
    events, because each of its events counts in another window.

    Args:
        column: the result of `counted_column`.
    """
    if isinstance(partials, DataFrame):
        sums = partials.groupBy(VERDICT).agg(F.sum(column).alias(column))
        return count_by_verdict(fetch_dataframe(sums), column)
    counts = Counter[int]()
    sums = partials.group_by(VERDICT).aggregate([(column, "sum")])
    for row in sums.to_pylist():
        counts[row[VERDICT]] += row[f"{column}_sum"]
    return counts


def _create_marker_rows(commits: Sequence[StateCommit], schema: pa.Schema) -> pa.Table:
    """Return a row for each commit, with its number and its marker. All other columns are null."""
    empty_row = dict.fromkeys(schema.names)
    rows = list[dict[str, object]]()
    for commit in commits:
        marker = {"commit_number": commit.commit_number, MARKER: to_json(commit)}
        rows.append({**empty_row, **marker})
    return pa.Table.from_pylist(rows, schema=schema)
