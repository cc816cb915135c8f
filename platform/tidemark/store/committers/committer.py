"""Commit with delta-rs, from memory or with files that the engine's workers have written.

A commit takes about 10 ms and does not depend on a Spark session. delta-rs does not ensure that a
transaction takes effect exactly once: it also accepts a transaction version that is not higher than
the last one. So this module opens the table, checks the application's last version, and commits
*with that same object*. Another commit of the same application in between then causes a conflict.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, cast

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame

from tidemark.base.errors import ConflictError
from tidemark.store.committers import durable
from tidemark.store.committers.conflicts import wait_after_conflict
from tidemark.store.committers.merging import for_datafusion, merge_rows
from tidemark.store.committers.row_reader import RowReader
from tidemark.store.committers.staged import Staged, stage_rows
from tidemark.store.committers.table_definitions import TableDefinitions
from tidemark.store.committers.table_upkeep import TableUpkeep
from tidemark.store.committers.values import Merge, Vouches
from tidemark.store.epoch import Epoch, ErasedMeanwhileError
from tidemark.store.refusals import busy_error, translate_refusals
from tidemark.store.rows import Rows, arrow_schema, delta_schema, fetch_rows, fit_to_schema

_ATTEMPTS = 20
_T = TypeVar("_T")


class Committer(RowReader, TableDefinitions, TableUpkeep):
    """Reads and writes the Delta tables below a folder, by name.

    A commit that names an application and a version takes effect once, however often it is
    repeated: it is skipped if the table has that version of the application, or a later one.
    """

    def append_rows(
        self,
        rows: Rows,
        table: str,
        app: str | None = None,
        version: int = 0,
        *,
        further_rows: pa.Table | None = None,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Append rows, once for each (app, version). Return the number of rows.

        Return None if the table already has this version of the application, or a later one.
        Without an application, every call appends.

        Args:
            further_rows: a few additional rows with the table's columns.
            vouches: the versions of other tables that the commit vouches for (`store.integrity`).
            epoch: the epoch in which the caller has read its data. If an erasure has fenced the
                table since, `ErasedMeanwhileError` is raised.
        """

        def append_rows(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(prepared, Staged):
                prepared.commit_files(opened, "append", properties)
                return prepared.row_count
            write_deltalake(opened, prepared, mode="append", commit_properties=properties)
            return prepared.num_rows

        with self._pinned_for(rows, table):
            prepared = self._prepare_rows(table, rows, further_rows)
            return self._commit_once(table, app, version, append_rows, vouches=vouches, epoch=epoch)

    def replace_rows(
        self,
        rows: Rows,
        table: str,
        where: str,
        app: str,
        version: int,
        *,
        further_rows: pa.Table | None = None,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Replace the rows that satisfy the SQL condition `where`. Otherwise like `append_rows`.

        If `where` is the text `TRUE`, the table takes over the columns of the new rows.
        """
        replaces_all = where == "TRUE"

        def replace_all_rows(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(prepared, Staged):
                prepared.commit_files(opened, "overwrite", properties, delta_schema(rows.schema))
                return prepared.row_count
            write_deltalake(
                opened,
                prepared,
                mode="overwrite",
                schema_mode="overwrite",
                commit_properties=properties,
            )
            return prepared.num_rows

        def replace_some_rows(opened: DeltaTable, properties: CommitProperties) -> int:
            if isinstance(prepared, Staged):
                new_rows = prepared.open_reader(arrow_schema(opened.schema()))
                count = prepared.row_count
            else:
                new_rows = prepared
                count = prepared.num_rows
            write_deltalake(
                opened,
                new_rows,
                mode="overwrite",
                predicate=for_datafusion(where),
                commit_properties=properties,
            )
            return count

        with self._pinned_for(rows, table):
            prepared = self._prepare_rows(table, rows, further_rows, replaces_all=replaces_all)
            return self._commit_once(
                table,
                app,
                version,
                replace_all_rows if replaces_all else replace_some_rows,
                must_be_next=replaces_all,
                reads_rows=not replaces_all,
                vouches=vouches,
                epoch=epoch,
            )

    def merge_rows(
        self,
        rows: Rows,
        table: str,
        merge: Merge,
        app: str | None = None,
        version: int = 0,
        *,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> int | None:
        """Merge rows into a table, and return the number of rows inserted, updated or deleted.

        Otherwise like `append_rows`.
        """
        new_rows = fetch_rows(rows)
        return self._commit_once(
            table,
            app,
            version,
            lambda opened, properties: merge_rows(opened, new_rows, merge, properties),
            reads_rows=True,
            vouches=vouches,
            epoch=epoch,
        )

    def merge_if(
        self, rows: Callable[[], Rows], table: str, merge: Merge, app: str, epoch: Epoch
    ) -> int:
        """Merge the result of `rows` into a table. Return the number of rows written.

        The table is opened first, and then `rows` is called. If another commit conflicts with the
        merge, `rows` is called again. Any commit of the application `app` in between conflicts.
        """
        for attempt in range(_ATTEMPTS):
            # Open a separate object: the call of `rows` may update the shared one.
            opened = self._tables.open_separately(table)
            transactions = dict[str, int]()
            newest_version = opened.transaction_version(app)
            if newest_version is not None:
                # This transaction makes any other commit of the application in between a conflict.
                transactions[app] = newest_version
            transactions |= epoch.demand_current(table, opened)
            new_rows = fetch_rows(rows())
            try:
                with translate_refusals(f"write table '{table}'"):
                    properties = CommitProperties(app_transactions=_list_transactions(transactions))
                    written_rows = merge_rows(opened, new_rows, merge, properties)
                    durable.sync_commit(self.path_of(table), opened)
                    return written_rows
            except ConflictError:
                wait_after_conflict(attempt)
        raise busy_error(table)

    def _pinned_for(self, rows: Rows, table: str) -> AbstractContextManager[None]:
        """Pin a table while rows in memory are committed to it.

        Rows that the engine computes take longer, so other commits are likely in the meantime.
        """
        if isinstance(rows, DataFrame):
            return nullcontext()
        return self.pin_version(table)

    def _prepare_rows(
        self,
        table: str,
        rows: Rows,
        further_rows: pa.Table | None,
        *,
        replaces_all: bool = False,
    ) -> pa.Table | Staged:
        """Return rows that can be committed: a table in memory, or staged files for a DataFrame.

        Args:
            further_rows: further rows to commit with them, in memory; None for none.
            replaces_all: true if the rows replace all rows of the table, which then takes over
                their columns.
        """
        if replaces_all:
            target_schema = delta_schema(rows.schema)
        else:
            target_schema = self._tables.open_newest(table).schema()
        fitted = fit_to_schema(rows, target_schema, table)
        if isinstance(fitted, pa.Table):
            if further_rows is None:
                return fitted
            return pa.concat_tables([fitted, further_rows])
        materialized = self._materialized.get(cast(DataFrame, rows))
        with translate_refusals(f"write table '{table}'"):
            if materialized is None:
                staged = stage_rows(fitted, self.path_of(table))
            else:
                staged = materialized.placed_in_table(self.path_of(table))
            if further_rows is None:
                return staged
            return staged.with_rows(further_rows)

    def _commit_once(
        self,
        table: str,
        app: str | None,
        version: int,
        write: Callable[[DeltaTable, CommitProperties], _T],
        *,
        must_be_next: bool = False,
        reads_rows: bool = False,
        vouches: Vouches | None = None,
        epoch: Epoch | None = None,
    ) -> _T | None:
        """Call `write`, and return its result. After a conflict with another commit, call it again.

        Return None without a call if the table has this version of the application, or a later one.

        Args:
            must_be_next: true if any commit that comes first is a conflict; false if only an
                incompatible one is.
            reads_rows: true if `write` reads the rows of the table.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with translate_refusals(f"write table '{table}'"):
                    opened = self._tables.open_newest(table)
                    if app is not None and _has_version(opened, app, version):
                        return None
                    transactions = dict[str, int]()
                    if app is not None:
                        transactions[app] = version
                    if vouches is not None:
                        transactions |= vouches
                    if epoch is not None:
                        transactions |= epoch.demand_current(table, opened)
                    # delta-rs checks these versions again while it commits, so another commit of
                    # the application in between is a conflict.
                    properties = CommitProperties(
                        max_commit_retries=0 if must_be_next else None,
                        app_transactions=_list_transactions(transactions) or None,
                    )
                    with self._tables.stage_commit(
                        table, opened, reads_rows=reads_rows
                    ) as committed:
                        written_rows = write(committed, properties)
            except ErasedMeanwhileError:
                raise
            except ConflictError:
                wait_after_conflict(attempt)
                continue
            self._compact_if_due(table, committed.version())
            return written_rows
        raise busy_error(table)


def _has_version(opened: DeltaTable, app: str, version: int) -> bool:
    newest_version = opened.transaction_version(app)
    return newest_version is not None and newest_version >= version


def _list_transactions(versions: Mapping[str, int]) -> list[Transaction]:
    return [Transaction(app, version) for app, version in versions.items()]
