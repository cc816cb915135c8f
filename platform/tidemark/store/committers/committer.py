"""Define the interface of committers, and its arguments and results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidemark.define.tables import TableName
from tidemark.store import rollup_generation
from tidemark.store.conditions import Condition
from tidemark.store.rows import Rows


class Head(NamedTuple):
    """A table's identity, newest version, and Tidemark properties.

    Fields:

    - `life`: its identity, from its creation until it is dropped.
    - `version`: the number of its newest commit.
    - `format`: its layout version; 0 for a table that Tidemark did not create.
    - `committer`: the name of its committer; None if it does not record one.
    - `kind`: for a roll-up, the kind of its windows (`store.rollup_generation`).
    - `name`: its owner and role; None for a table without an owner.
    """

    life: str
    version: int
    format: int
    committer: str | None
    kind: str = ""
    name: TableName | None = None

    @classmethod
    def from_properties(
        cls, table: str, life: str, version: int, properties: Mapping[str, str | None]
    ) -> "Head":
        """Create a head from a table's properties."""
        form = int(properties.get("tidemark.format") or 0)
        kind = properties.get(rollup_generation.PROPERTY) or ""
        committer = properties.get("tidemark.committer")
        return cls(life, version, form, committer, kind, TableName.of(table, properties))


class CompactionResult(NamedTuple):
    """The number of a table's files before and after a compaction."""

    before: int
    after: int


class VacuumResult(NamedTuple):
    """The files that a vacuum removed: their number, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class KeptFiles:
    """The files that a vacuum keeps in addition to the table's current ones.

    Instants are microseconds.

    Args:
        removed_since: keep files that were removed from the table since then.
        written_since: keep files that no version refers to and that were written since then.
        versions: keep the files of these versions.
        fed_since: keep files of the change data feed that were written since then. The default is
            `written_since`.
    """

    removed_since: int
    written_since: int
    versions: tuple[int, ...] = ()
    fed_since: int | None = None


@dataclass(frozen=True)
class Merge:
    """A merge; conditions refer to the table as `t` and to the new rows as `s`.

    Args:
        on: the columns that must be equal for rows to match; nulls are equal.
        within: a condition on the table that allows data skipping.
        delete: condition under which a matched row is deleted.
        update: condition under which another matched row is updated; None means never.
        insert: condition under which an unmatched new row is inserted; None means never.
        only: the columns that an update changes, with SQL expressions; None means all columns.
    """

    on: Sequence[str]
    within: str = "TRUE"
    delete: str | None = None
    update: str | None = "TRUE"
    insert: str | None = "TRUE"
    only: dict[str, str] | None = None

    def matching(self) -> str:
        """Return the match condition, with `{same}` for the committer's null-safe equality."""
        return " AND ".join([*(f"(t.`{c}` {{same}} s.`{c}`)" for c in self.on), f"({self.within})"])


Vouches = Mapping[str, int]
"""Versions of other tables that a commit vouches for, as additional application transactions.

`store.integrity` compares them with those tables.
"""


class Committer(Protocol):
    """A committer: creates tables, commits to them and reads them.

    A commit that names an application and a version takes effect once, however often it is
    repeated. It is skipped if the table has that version of the application, or a later one.
    """

    name: ClassVar[str]
    """The committer's name in a table's properties."""

    def create(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        """Create a table. Return False if it exists already."""
        ...

    def add_columns(self, table: str, columns: pa.Schema) -> None:
        """Add columns to a table; they are null in its existing rows."""
        ...

    def set_properties(self, table: str, properties: dict[str, str]) -> None:
        """Set properties of a table."""
        ...

    def head(self, table: str) -> Head | None:
        """Return a table's head; None if the table does not exist."""
        ...

    def version_at(self, path: str) -> int | None:
        """Return the newest version of any Delta table, by its path; None if there is none."""
        ...

    def schema(self, table: str) -> pa.Schema:
        """Return the table's columns."""
        ...

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest whole number in a column; None if there is none."""
        ...

    def transaction(self, table: str, app: str) -> int:
        """Return the newest version of an application in a table; -1 before the first."""
        ...

    def known(self, table: str) -> int | None:
        """Return the newest version of a table that this thread has seen; None if none.

        Does not access the table.
        """
        ...

    def spill(self, folder: str, tables: Iterable[pa.Table]) -> DataFrame:
        """Write in-memory tables into a folder, and return them as one DataFrame."""
        ...

    def materialize(self, folder: str, rows: DataFrame, most: int) -> Rows:
        """Have the engine compute rows, once and in full, into a folder of their own.

        A commit of exactly these rows reuses the files if possible.

        Returns:
            The rows in memory, if they are known to be at most `most`; otherwise a DataFrame that
            reads the files.
        """
        ...

    def at_most(self, table: str, *bounds: Condition) -> int | None:
        """Return an upper bound of the rows that satisfy all bounds; None if it is unknown."""
        ...

    def append(
        self,
        table: str,
        rows: Rows,
        app: str | None,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        """Append rows, and `also` a few more. Return the number of rows.

        Return None if the commit was skipped.
        """
        ...

    def replace(
        self,
        table: str,
        rows: Rows,
        where: str,
        app: str,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        """Replace the rows for which `where` is true. Otherwise like `append`.

        If `where` is `TRUE`, the table takes over the columns of the new rows.
        """
        ...

    def merge(
        self, table: str, rows: Rows, merge: Merge, app: str | None, version: int
    ) -> int | None:
        """Merge rows into the table. Return the number of rows inserted, updated or deleted."""
        ...

    def changes(self, table: str, since: int) -> DataFrame:
        """Return the change data feed of the commits after `since`."""
        ...

    def changed(self, table: str, since: int, through: int) -> pa.Table:
        """Return the changes of the commits (since, through] in memory.

        Raises:
            HistoryExpiredError: the table's history does not go back so far.
        """
        ...

    def snapshot(self, table: str) -> tuple[Head, pa.Table]:
        """Return a table's head, and all of its rows as of that commit."""
        ...

    def merge_if(self, table: str, rows: Callable[[], Rows], merge: Merge, app: str) -> int:
        """Merge rows that are read after the table was opened. Return the number of rows written.

        If the application has committed to the table in between, the rows are read again.
        """
        ...

    def select(self, rows: DataFrame, columns: Sequence[str]) -> pa.Table:
        """Return some columns, in memory, of rows that `materialize` computed."""
        ...

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows that satisfy all bounds in memory, with the given columns or all."""
        ...

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        """Return the rows that satisfy all bounds as a DataFrame."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the Delta tables that exist."""
        ...

    def properties(self, table: str) -> dict[str, str]:
        """Return the properties of a table."""
        ...

    def committed_at(self, table: str, version: int) -> int | None:
        """Return when a version was committed, in microseconds; None if its entry was removed."""
        ...

    def rows_at(self, table: str, version: int) -> Rows:
        """Return the rows of a version of a table; in memory if they are known to be few."""
        ...

    def readable(self, table: str, version: int) -> bool:
        """Return whether the transaction log has a version, and all of its files exist."""
        ...

    def compact(self, table: str, target: int, *, dry_run: bool = False) -> CompactionResult:
        """Rewrite small files into files of about `target` bytes; large files stay as they are.

        Raises:
            ConflictError: other writers keep changing the table; nothing was changed.
        """
        ...

    def checkpoint(self, table: str, *, forget: bool) -> None:
        """Write a checkpoint of the transaction log. With `forget`, also remove expired entries."""
        ...

    def shorten(self, table: str) -> bool:
        """Reduce the transaction log to the newest version. Return False if it can't be done."""
        ...

    def vacuum(self, table: str, spared: KeptFiles, *, dry_run: bool = False) -> VacuumResult:
        """Remove the files that neither the table nor `spared` needs."""
        ...
