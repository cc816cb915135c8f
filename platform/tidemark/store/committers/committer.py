"""What is asked of a committer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidemark.define.tables import TableName
from tidemark.store import kinds
from tidemark.store.conditions import Condition
from tidemark.store.rows import Rows


class Head(NamedTuple):
    """Where a table stands: its identity, which it has from its creation to its end, the number of
    its newest commit, and what it says of itself: the format of Tidemark's that it has, 0 where it
    says none, as the tables of others; who commits to it, None where it does not say; of what kind
    its windows are (`store.kinds`), where it is a roll-up's; and its owner and role, None for a
    table that has no owner."""

    life: str
    version: int
    format: int
    committer: str | None
    kind: str = ""
    name: TableName | None = None

    @classmethod
    def told(
        cls, table: str, life: str, version: int, properties: Mapping[str, str | None]
    ) -> "Head":
        """By what a table's properties say."""
        form = int(properties.get("tidemark.format") or 0)
        kind = properties.get(kinds.PROPERTY) or ""
        committer = properties.get("tidemark.committer")
        return cls(life, version, form, committer, kind, TableName.of(table, properties))


class Folded(NamedTuple):
    """How many files a table had before a compaction, and has after it."""

    before: int
    after: int


class Freed(NamedTuple):
    """What a vacuum removed."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Spared:
    """What a vacuum leaves beside the files that a table has. Instants are microseconds.

    Args:
        removed_since: a file that was taken out of the table since then.
        written_since: a file that no version names and that was written since then.
        versions: the files that these versions have.
        fed_since: a file of the change feed that was written since then; by default as others that
            no version names.
    """

    removed_since: int
    written_since: int
    versions: tuple[int, ...] = ()
    fed_since: int | None = None


@dataclass(frozen=True)
class Merge:
    """What a merge does; conditions name the table `t` and the rows `s`.

    Args:
        on: columns in which a row and one of the table's agree; nulls agree too.
        within: a condition on the table that lets files be passed over.
        delete: deletes the table's row, where true.
        update: otherwise puts the row in its place, where true; None never does.
        insert: adds a row that agrees with none, where true; None never does.
        only: the columns that an update changes, to SQL expressions; all of them by default.
    """

    on: Sequence[str]
    within: str = "TRUE"
    delete: str | None = None
    update: str | None = "TRUE"
    insert: str | None = "TRUE"
    only: dict[str, str] | None = None

    def matching(self) -> str:
        """The condition on which rows agree, for both committers."""
        return " AND ".join([*(f"(t.`{c}` {{same}} s.`{c}`)" for c in self.on), f"({self.within})"])


Vouches = Mapping[str, int]
"""What a commit says of other tables, as more applications with their versions: `store.integrity`
compares them with those tables."""


class Committer(Protocol):
    """Creates tables and commits to them; reads no more of them than a commit needs.

    A commit that names an application and a version takes effect once, whatever is repeated: it
    is passed over where the table has that version of the application, or a later one.
    """

    name: ClassVar[str]
    """What a table says of who commits to it."""

    def create(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        """Create a table; whether nobody else had."""
        ...

    def widen(self, table: str, columns: pa.Schema) -> None:
        """Add columns to a table, which are null in its rows."""
        ...

    def tell(self, table: str, properties: dict[str, str]) -> None:
        """Let a table say more of itself, or otherwise."""
        ...

    def head(self, table: str) -> Head | None:
        """Where a table stands; None where there is none."""
        ...

    def version_at(self, path: str) -> int | None:
        """The newest version of any Delta table, by its path; None where there is none."""
        ...

    def schema(self, table: str) -> pa.Schema:
        """The table's columns."""
        ...

    def greatest(self, table: str, column: str) -> int | None:
        """The greatest whole number in a column; None where there is none."""
        ...

    def transaction(self, table: str, app: str) -> int:
        """The newest version of an application in a table; -1 before the first."""
        ...

    def known(self, table: str) -> int | None:
        """Return the newest version of a table that this thread has seen, without a look at the
        table; None if it has seen none."""
        ...

    def spill(self, folder: str, tables: Iterable[pa.Table]) -> DataFrame:
        """Write rows in memory into a folder, for the engine to read; of one table or more."""
        ...

    def aside(self, folder: str, rows: DataFrame, most: int) -> Rows:
        """Have the engine compute rows, once and in full, into a folder of their own; what reads
        them from there, or up to `most` of them in memory, where that is told without asking.
        A commit of just these takes the files as they are, where it can."""
        ...

    def at_most(self, table: str, *bounds: Condition) -> int | None:
        """How many rows at most are within all of these bounds; None where that is not told without
        asking."""
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
        """Add rows, and `also` a few more of the table's columns: how many; None where the commit
        was passed over."""
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
        """Put rows in the place of those of which `where` is true; otherwise as `append`. Where it
        is `TRUE` the table has the columns of the rows from then on."""
        ...

    def merge(
        self, table: str, rows: Rows, merge: Merge, app: str | None, version: int
    ) -> int | None:
        """Merge rows into the table: how many it added, changed or deleted."""
        ...

    def changes(self, table: str, since: int) -> DataFrame:
        """The change feed of the commits after `since`."""
        ...

    def changed(self, table: str, since: int, through: int) -> pa.Table:
        """The same in memory, of the commits (since, through].

        Raises:
            HistoryGone: the table's history does not go back so far.
        """
        ...

    def whole(self, table: str) -> tuple[Head, pa.Table]:
        """Where a table stands, and all of its rows as of that commit."""
        ...

    def merge_if(self, table: str, rows: Callable[[], Rows], merge: Merge, app: str) -> int:
        """Merge rows that are read after the table was looked at, where the application has
        committed nothing to it in between; otherwise they are read again."""
        ...

    def pick(self, rows: DataFrame, columns: Sequence[str]) -> pa.Table:
        """Some columns, in memory, of rows that were computed aside."""
        ...

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows within all of these bounds, in memory; some of their columns, or all."""
        ...

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        """The same for the engine."""
        ...

    def tables(self) -> list[str]:
        """The Delta tables that are there, by name."""
        ...

    def properties(self, table: str) -> dict[str, str]:
        """The properties of a table."""
        ...

    def committed_at(self, table: str, version: int) -> int | None:
        """When a version was committed, in microseconds; None where the log has forgotten it."""
        ...

    def rows_at(self, table: str, version: int) -> Rows:
        """The rows that a version of a table has; few of them in memory, where it is told without
        asking that they are."""
        ...

    def readable(self, table: str, version: int) -> bool:
        """Whether the log tells of a version, and all of its files are there."""
        ...

    def compact(self, table: str, target: int, *, dry_run: bool = False) -> Folded:
        """Write small files as few of about `target` bytes; large ones stay as they are.

        Raises:
            ConflictError: others keep changing the table; nothing was changed.
        """
        ...

    def checkpoint(self, table: str, *, forget: bool) -> None:
        """Write the log's newest checkpoint and, with `forget`, remove what is long before it."""
        ...

    def shorten(self, table: str) -> bool:
        """Let the log tell of the newest version alone; whether it does."""
        ...

    def vacuum(self, table: str, spared: Spared, *, dry_run: bool = False) -> Freed:
        """Remove the files that the table has no use for any more."""
        ...
