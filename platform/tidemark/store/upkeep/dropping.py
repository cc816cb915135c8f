"""Drop an asset or a derived source: remove all tables that belong to it.

The tables are found by their owner, so that the tables of a definition that is no longer loaded can
be dropped, too. The ledger and the check results keep their rows about a dropped asset, under its
old `Asset.table_id`. The next run of the asset starts under a new identity.

Everything that was computed from the dropped tables refers to their arrivals or windows by number,
and must be dropped first. Roll-ups are an exception: their next run replaces all of their windows.

An asset's state, or a derived source's timeline, is dropped first. No run continues from the other
tables without it. The checkpoint of an asset's streaming query is removed even before that:
otherwise the query would skip the arrivals that the dropped tables had.
"""

from collections.abc import Iterable

from tidemark.base.errors import DataError
from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.tables import Role, TableName
from tidemark.store import operations
from tidemark.store.graph import Graph, Node
from tidemark.store.operations import Kind
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse

_FIRST = (Role.TIMELINE, Role.STATE)

_ENDED_BY_DROP = (Kind.DROP, Kind.LOWER, Kind.PROMOTE)
"""The operations that have nothing left to finish after a drop of their owner."""


def list_dependents(graph: Graph, owner: str) -> list[Node]:
    """Return everything that must be dropped before an owner, in the order in which to drop it.

    The roll-ups of an asset can stay.
    """
    node = graph.find_node(owner)
    is_asset = node is not None and node.is_asset
    dependents = list[Node]()
    for dependent in reversed(graph.nodes_below(owner)):
        is_rollup = is_asset and dependent.is_asset and owner in dependent.bases
        if not is_rollup:
            dependents.append(dependent)
    return dependents


def check_droppable(graph: Graph, owner: str) -> None:
    """Refuse to drop an owner from whose tables something else was computed."""
    dependents = list_dependents(graph, owner)
    if not dependents:
        return
    name = owner.partition(" ")[2]
    names = ", ".join(f"'{dependent.name}'" for dependent in dependents)
    commands = ", then ".join(f"`tidemark drop {dependent.name}`" for dependent in dependents)
    verb = "was" if len(dependents) == 1 else "were"
    raise DataError(
        f"'{name}' can't be dropped, because {names} {verb} computed from its tables and can't "
        f"continue without them. First run {commands}."
    )


def drop_asset(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Remove the tables of one definition, and return those that existed.

    Other tables of the same owner stay, such as those of a rebuild. No run of the definition may be
    in progress. After an interruption, call this function again.
    """
    checkpoints.remove_checkpoint(warehouse, transform.name)
    return [table for table in transform.own_tables if warehouse.drop_table(table)]


def drop_event_log(warehouse: Warehouse, source: DerivedSource) -> list[str]:
    """Remove the tables of a derived source, and return those that existed.

    Other tables of the same owner stay. No ingest of the source may be in progress. After an
    interruption, call this function again.
    """
    # The timeline goes first, because it determines which arrivals exist.
    tables = dict.fromkeys([source.timeline_table, *source.own_tables])
    return [table for table in tables if warehouse.drop_table(table)]


def drop_owner(
    warehouse: Warehouse, owner: str, definition_tables: Iterable[TableName] = ()
) -> list[str]:
    """Remove all tables of an owner, and return those that existed.

    No run or ingest of the owner may be in progress. After an interruption, call this function
    again.

    Args:
        definition_tables: the tables of the owner's definition, if there is one. The tables
            that exist are found without them, unless their transaction log is damaged.
    """
    node = Graph.of_folder(warehouse.path_of("").rstrip("/")).find_node(owner)
    tables = set(definition_tables)
    if node is not None:
        tables.update(node.tables)
    name = owner.partition(" ")[2]
    if owner == tables_of.asset_owner(name):
        checkpoints.remove_checkpoint(warehouse, name)
    dropped = list[str]()
    if any(warehouse.has_files(table) for table in tables):
        with operations.record_operation(warehouse, Kind.DROP, owner):
            for table in sorted(tables, key=_drop_order):
                if warehouse.drop_table(table):
                    dropped.append(str(table))
    for kind in _ENDED_BY_DROP:
        operations.record_end(warehouse, kind, owner)
    return dropped


def _drop_order(table: TableName) -> tuple[bool, str]:
    return table.role not in _FIRST, str(table)
