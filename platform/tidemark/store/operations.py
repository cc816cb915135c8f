"""Record operations of several steps, so that an interrupted one is not forgotten.

An operation is recorded before its first change, and recorded as finished after its last one. If
its process is killed or fails in between, the operation is *unfinished*: `tidemark status` names
it, and the same command finishes it. Until then, runs and ingests of the same asset or source are
refused, except after an erasure, where they log a warning (`store.log_rewrite`).

The table `operations` has a row for each beginning and each end. Nothing in it reveals the
condition of an erasure.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from tidemark.base.errors import DataError
from tidemark.base.instants import format_instant
from tidemark.define import tables
from tidemark.store.committers import file_list
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.rows import INSTANT, to_dicts

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

TABLE = tables.OPERATIONS
BEGUN = "begun"
ENDED = "ended"

_in_progress = set[str]()
"""The ids of the operations that this process carries out. Their own runs are not refused."""

_all_ended = dict[str, tuple[str, int]]()
"""The version of a table `operations`, by its path, in which no operation is unfinished."""

SCHEMA = pa.schema(
    {
        "operation": pa.string(),
        "kind": pa.string(),
        "owner": pa.string(),
        "phase": pa.string(),
        "at": INSTANT,
    }
)


class Kind(StrEnum):
    """The commands of several steps, as the table `operations` names them."""

    ERASE = "erase"
    DROP = "drop"
    LOWER = "lower"
    PROMOTE = "promote"


class UnfinishedOperationError(DataError):
    """Work is refused because an operation on the same tables is unfinished."""

    def __init__(self, operation: "Operation") -> None:
        super().__init__(f"The tables of {operation.owner} are incomplete. {operation}")


_COMMANDS = {
    Kind.ERASE: "tidemark erase {} --where …",
    Kind.DROP: "tidemark drop {}",
    Kind.LOWER: "tidemark watermark {} --lower",
    Kind.PROMOTE: "tidemark rebuild {} --promote",
}


@dataclass(frozen=True)
class Operation:
    """A record that a command of several steps has begun on a source or an asset.

    Args:
        id: identifies the operation in the table; its end has the same id.
        kind: the command.
        owner: the owner of the tables that the operation changes first, as in `source orders`.
        began_at: when the operation began, in microseconds.
    """

    id: str
    kind: Kind
    owner: str
    began_at: int

    @property
    def command(self) -> str:
        """The command that finishes the operation."""
        return _COMMANDS[self.kind].format(self.owner.partition(" ")[2])

    @property
    def cause(self) -> str:
        """A sentence about what is unfinished."""
        effect = ", so some tables may still have the events" if self.kind is Kind.ERASE else ""
        return (
            f"`{self.command}`, begun at {format_instant(self.began_at)}, is not finished{effect}."
        )

    @property
    def remedy(self) -> str:
        """A sentence about how to finish it."""
        hint = ", with the same or any other condition" if self.kind is Kind.ERASE else ""
        return f"Run it again{hint}."

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"


@contextmanager
def record_operation(warehouse: "Warehouse", kind: Kind, owner: str) -> Iterator[None]:
    """Record that an operation begins, and at the end of the `with` block that it has finished.

    If the block fails, the operation stays unfinished. An unfinished operation of the same kind and
    owner is continued, and has finished with this one.
    """
    record_begin(warehouse, kind, owner)
    operations = {operation.id for operation in _find_unfinished(warehouse, kind, owner)}
    _in_progress.update(operations)
    try:
        yield
    finally:
        _in_progress.difference_update(operations)
    record_end(warehouse, kind, owner)


def record_begin(warehouse: "Warehouse", kind: Kind, owner: str) -> None:
    """Record that an operation begins, unless an unfinished one is continued."""
    warehouse.ensure_table(TABLE, SCHEMA.empty_table(), "Operations of several steps")
    if not _find_unfinished(warehouse, kind, owner):
        operation = Operation(uuid4().hex, kind, owner, time.time_ns() // 1000)
        _append_phase(warehouse, operation, BEGUN)


def record_end(warehouse: "Warehouse", kind: Kind, owner: str) -> None:
    """Record that an operation has finished. Without an unfinished one, nothing happens."""
    if warehouse.has_table(TABLE):
        for operation in _find_unfinished(warehouse, kind, owner):
            _append_phase(warehouse, operation, ENDED)


def find_unfinished(folder: str) -> list[Operation]:
    """Return the unfinished operations of a database, the oldest first, without the engine."""
    try:
        opened = OpenTables(folder).open_newest(TABLE)
    except TableNotFoundError:
        return []
    return select_unfinished(file_list.load_rows(opened, ()))


def select_unfinished(rows: pa.Table) -> list[Operation]:
    """Return the operations that have begun and not ended, the oldest first.

    Args:
        rows: rows of the table `operations`.
    """
    unfinished = dict[str, Operation]()
    ended = set[str]()
    for row in to_dicts(rows.sort_by("at")):
        if row["phase"] == ENDED:
            ended.add(row["operation"])
        elif row["phase"] == BEGUN:
            kind = Kind(row["kind"])
            operation = Operation(row["operation"], kind, row["owner"], row["at"])
            unfinished[operation.id] = operation
    # The clock may have been set back in between, so the end may be sorted before the beginning.
    for operation_id in ended:
        unfinished.pop(operation_id, None)
    return list(unfinished.values())


def list_unfinished(warehouse: "Warehouse") -> list[Operation]:
    """Return all unfinished operations.

    As long as the table does not change, it is not read again.
    """
    head = warehouse.find_head(TABLE)
    address = warehouse.path_of(TABLE)
    if head is None or _all_ended.get(address) == (head.table_id, head.version):
        return []
    unfinished = select_unfinished(warehouse.load_rows(TABLE))
    if not unfinished:
        _all_ended[address] = (head.table_id, head.version)
    return unfinished


def check_unfinished(warehouse: "Warehouse", owners: Sequence[str]) -> None:
    """Refuse to work on sources and assets on which an operation is unfinished.

    Runs continue after an interrupted erasure, because no result of theirs is wrong.
    """
    for operation in list_unfinished(warehouse):
        if operation.kind is Kind.ERASE or operation.id in _in_progress:
            continue
        if operation.owner in owners:
            raise UnfinishedOperationError(operation)


def _find_unfinished(warehouse: "Warehouse", kind: Kind, owner: str) -> list[Operation]:
    selected = list[Operation]()
    for operation in select_unfinished(warehouse.load_rows(TABLE)):
        if operation.kind is kind and operation.owner == owner:
            selected.append(operation)
    return selected


def _append_phase(warehouse: "Warehouse", operation: Operation, phase: str) -> None:
    recorded_at = operation.began_at if phase == BEGUN else time.time_ns() // 1000
    row = {
        "operation": operation.id,
        "kind": operation.kind.value,
        "owner": operation.owner,
        "phase": phase,
        "at": recorded_at,
    }
    rows = pa.Table.from_pylist([row], schema=SCHEMA)
    version = 0 if phase == BEGUN else 1
    warehouse.append_rows(rows, TABLE, f"operation/{operation.id}", version)
