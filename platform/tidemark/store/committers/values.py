"""Define the arguments and results of commits and of table maintenance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.define.tables import TableName
from tidemark.store.commits import rollup_generation


class Head(NamedTuple):
    """A table's identity, newest version, and Tidemark properties.

    Fields:

    - `table_id`: the table's identity, from its creation until it is dropped.
    - `version`: the number of the newest commit.
    - `format`: the version of the layout; 0 for a table that Tidemark did not create.
    - `kind`: a text that identifies a roll-up's definition (`store.commits.rollup_generation`);
      empty for other tables.
    - `name`: the table's name with its owner and role; None for a table without an owner.
    """

    table_id: str
    version: int
    format: int
    kind: str = ""
    name: TableName | None = None

    @classmethod
    def from_properties(
        cls, table: str, table_id: str, version: int, properties: Mapping[str, str | None]
    ) -> "Head":
        form = int(properties.get("tidemark.format") or 0)
        kind = properties.get(rollup_generation.PROPERTY) or ""
        return cls(table_id, version, form, kind, TableName.from_properties(table, properties))


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
        removed_since: keep files that were removed from the table since this instant.
        written_since: keep files that no version refers to and that were written since this
            instant.
        versions: keep the files of these versions.
        fed_since: keep files of the change data feed that were written since this instant. The
            default is `written_since`.
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
        delete: condition under which a matched row is deleted; None means never.
        update: condition under which a matched row that is not deleted is updated; None means
            never.
        insert: condition under which an unmatched new row is inserted; None means never.
        only: the columns that an update changes, with SQL expressions; None means all columns.
    """

    on: Sequence[str]
    within: str = "TRUE"
    delete: str | None = None
    update: str | None = "TRUE"
    insert: str | None = "TRUE"
    only: dict[str, str] | None = None

    def match_condition(self) -> str:
        """Return the match condition, with the placeholder `{same}` for null-safe equality."""
        conditions = [f"(t.`{column}` {{same}} s.`{column}`)" for column in self.on]
        conditions.append(f"({self.within})")
        return " AND ".join(conditions)


Vouches = Mapping[str, int]
"""Versions of other tables on which a commit depends.

The commit records each version as a transaction; the key is the transaction's application id, which
names the table. `store.integrity` compares the versions with those tables.
"""
