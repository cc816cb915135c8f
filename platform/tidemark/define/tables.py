"""Table names: one namespace for the tables of sources, assets, lookup tables and Tidemark itself.

A `TableName` also has the table's owner and role. Both become properties of the Delta table. These
properties identify an existing table; its name alone never does. A writer refuses a table of
another owner. Commands such as erase and drop find tables, and what was computed from them, by
these properties (`store.graph`), also if no domain defines their owner any more.

| property | value |
| --- | --- |
| `tidemark.owner` | `source orders`, `asset visits`, or `tidemark` |
| `tidemark.role` | one of `Role` |
| `tidemark.bases` | the owners whose tables this owner reads, as in `asset visits, source orders` |
| `tidemark.side` | for a side table of a rebuild or a replay: the side's name, `<asset>__<name>` |
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import chain
from typing import Self

from tidemark.base.errors import DefinitionError

OWNER = "tidemark.owner"
ROLE = "tidemark.role"
SIDE = "tidemark.side"
BASES = "tidemark.bases"
_SEPARATOR = ", "


class Role(StrEnum):
    """The purpose of a table. The value is the term that messages use."""

    EVENT_LOG = "event log"
    TIMELINE = "timeline"
    DEAD_LETTERS = "dead-letter table"
    VERSIONS = "versions table"
    LOOKUP = "lookup table"
    STATE = "state"
    PUBLISHED = "published table"
    PANES = "panes table"
    QUARANTINE = "quarantine"
    LATE = "late table"
    LATE_LOSS = "late-loss table"
    SYSTEM = "system table"


class TableName(str):
    """A table's name, with its owner and role.

    Args:
        owner: the value of the property `tidemark.owner`.
        side: the value of the property `tidemark.side`; empty if the table does not have it.
        bases: the owners in the property `tidemark.bases`. They are not part of the identity,
            because a changed definition can read other tables.
    """

    __slots__ = ("bases", "owner", "role", "side")

    owner: str
    role: Role
    side: str
    bases: tuple[str, ...]

    def __new__(
        cls, name: str, owner: str, role: Role, side: str = "", bases: tuple[str, ...] = ()
    ) -> Self:
        table = super().__new__(cls, name)
        table.owner = owner
        table.role = role
        table.side = side
        table.bases = bases
        return table

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, Role, str, tuple[str, ...]]]:
        return type(self), (str(self), self.owner, self.role, self.side, self.bases)

    @classmethod
    def from_properties(cls, name: str, properties: Mapping[str, str | None]) -> Self | None:
        """Return the name of an existing table, with owner and role from its properties.

        Return None if it has no owner, or no known role.
        """
        owner = properties.get(OWNER)
        role = properties.get(ROLE)
        if not owner or role not in set(Role):
            return None
        side = properties.get(SIDE) or ""
        bases = properties.get(BASES)
        if not bases:
            return cls(name, owner, Role(role), side)
        return cls(name, owner, Role(role), side, tuple(bases.split(_SEPARATOR)))

    @property
    def table_properties(self) -> dict[str, str]:
        properties = {OWNER: self.owner, ROLE: self.role.value}
        if self.side:
            properties[SIDE] = self.side
        return properties | self.bases_property

    @property
    def bases_property(self) -> dict[str, str]:
        """The property `tidemark.bases`; empty if the owner reads no other owner's tables."""
        if self.bases:
            return {BASES: _SEPARATOR.join(self.bases)}
        return {}

    @property
    def table_identity(self) -> tuple[str, Role, str]:
        """Owner, role and side. Two names with equal identity belong to the same table."""
        return self.owner, self.role, self.side

    def describe_role(self) -> str:
        """Return a description of the table's owner and role, for a message."""
        if self.owner == _SYSTEM:
            return "a system table of Tidemark"
        kind, _, name = self.owner.partition(" ")
        description = f"the {self.role} of {kind} '{name}'"
        if self.side:
            return f"{description} (side tables '{self.side}')"
        return description


REBUILD = "rebuild"
"""The `name` of a rebuild's side tables, whose names begin with `<asset>__<name>`."""

_SYSTEM = "tidemark"
LEDGER = TableName("runs", _SYSTEM, Role.SYSTEM)
CHECKS = TableName("checks", _SYSTEM, Role.SYSTEM)
ERASURES = TableName("erasures", _SYSTEM, Role.SYSTEM)
PARITIES = TableName("parities", _SYSTEM, Role.SYSTEM)
OPERATIONS = TableName("operations", _SYSTEM, Role.SYSTEM)
SYSTEM_TABLES = (LEDGER, CHECKS, ERASURES, PARITIES, OPERATIONS)


def source_owner(name: str) -> str:
    return f"source {name}"


def asset_owner(name: str) -> str:
    return f"asset {name}"


def check_names(tables: Iterable[TableName]) -> None:
    """Refuse two different tables with the same name, ignoring case.

    The names of the system tables are taken, too.
    """
    names: dict[str, TableName] = {}
    for table in chain(SYSTEM_TABLES, tables):
        first_table = names.setdefault(table.casefold(), table)
        if first_table.table_identity != table.table_identity:
            raise DefinitionError(describe_clash(first_table, table))


def describe_clash(existing: TableName, added: TableName) -> str:
    """Return the message for a table name that two owners, or two roles, would share."""
    advice = "use another database"
    if added.owner != _SYSTEM:
        kind = added.owner.partition(" ")[0]
        advice = f"rename the {kind}"
    return (
        f"Table '{added}' would be both {existing.describe_role()} and {added.describe_role()}: "
        f"{advice}. "
        "Sources, assets, their side tables and Tidemark's system tables share one namespace."
    )
