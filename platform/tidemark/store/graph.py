"""Read from the tables themselves which source or asset was computed from which.

Each table has its owner, and the owners whose tables the owner reads (`tidemark.bases`), as
properties. Commands that change a source or an asset thus find everything that was computed from
it, also if no loaded domain defines it any more.

An owner is a *node* of the graph: `source orders`, `asset orders_hourly`. Its bases are the nodes
that it reads. All nodes that read it, directly or through others, are *below* it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from deltalake.exceptions import DeltaError
from pyarrow import fs

from tidemark.define import tables as tables_of
from tidemark.define.tables import Role, TableName
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.open_tables import OpenTables


@dataclass(frozen=True)
class Node:
    """A source or an asset that has tables.

    Args:
        owner: the value of `tidemark.owner` of its tables.
        bases: the owners whose tables it reads.
        tables: its tables, sorted by name.
    """

    owner: str
    bases: tuple[str, ...]
    tables: tuple[TableName, ...]

    @property
    def name(self) -> str:
        return self.owner.partition(" ")[2]

    @property
    def is_asset(self) -> bool:
        return self.owner == tables_of.asset_owner(self.name)

    @property
    def is_derived(self) -> bool:
        """True for a source that is computed from other sources or from windows."""
        return not self.is_asset and bool(self.bases)

    def of_role(self, role: Role) -> list[TableName]:
        """Return the tables of a role, without those of rebuilds and side replays."""
        return [table for table in self.tables if table.role is role and not table.side]

    def __str__(self) -> str:
        return self.name


class Graph:
    """The sources and assets that have tables, and from which others each was computed.

    Args:
        tables: all tables with an owner. System tables are left out.
    """

    def __init__(self, tables: Iterable[TableName]) -> None:
        by_owner = defaultdict[str, list[TableName]](list)
        for table in tables:
            if table.role is not Role.SYSTEM:
                by_owner[table.owner].append(table)
        self.nodes: Mapping[str, Node] = {
            owner: _create_node(owner, owned) for owner, owned in sorted(by_owner.items())
        }
        readers = defaultdict[str, list[Node]](list)
        for node in self.nodes.values():
            for base in node.bases:
                readers[base].append(node)
        self._readers = readers

    @classmethod
    def of_folder(cls, folder: str) -> Self:
        """Read the graph of a database without the engine. Damaged tables are left out."""
        system, path = file_system(folder)
        tables = list[TableName]()
        for entry in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            is_hidden = entry.base_name[0] in "._"
            if entry.type != fs.FileType.Directory or is_hidden:
                continue
            table = _read_name(folder, entry.base_name)
            if table is not None:
                tables.append(table)
        return cls(sorted(tables))

    def find_node(self, owner: str) -> Node | None:
        """Return the node of an owner; None if the owner has no tables."""
        return self.nodes.get(owner)

    def direct_readers(self, owner: str) -> Sequence[Node]:
        """Return the nodes that read the tables of an owner directly."""
        return self._readers.get(owner, [])

    def nodes_below(self, *owners: str) -> list[Node]:
        """Return all nodes that were computed from some owners, each after its bases.

        The owners themselves need not have tables, and are not in the result.
        """
        reached = dict[str, Node]()
        waiting = list(owners)
        while waiting:
            for node in self.direct_readers(waiting.pop()):
                if node.owner not in reached:
                    reached[node.owner] = node
                    waiting.append(node.owner)
        for owner in owners:
            reached.pop(owner, None)
        return _sort_by_bases(reached)


def _create_node(owner: str, tables: Iterable[TableName]) -> Node:
    """Return the node of an owner.

    After a change of a definition, tables that were not written since still name the earlier bases.
    The node has the bases of all of its tables, because their rows come from all of these.
    """
    owned = tuple(sorted(tables))
    bases = dict.fromkeys(base for table in owned for base in table.bases)
    return Node(owner, tuple(bases), owned)


def _sort_by_bases(nodes: Mapping[str, Node]) -> list[Node]:
    """Return nodes in an order in which each follows its bases.

    If definitions were changed so that two nodes name each other, their order is arbitrary.
    """
    ordered = dict[str, Node]()

    def add_after_bases(node: Node, path: frozenset[str]) -> None:
        if node.owner in ordered or node.owner in path:
            return
        for base in sorted(node.bases):
            if base in nodes:
                add_after_bases(nodes[base], path | {node.owner})
        ordered[node.owner] = node

    for owner in sorted(nodes):
        add_after_bases(nodes[owner], frozenset())
    return list(ordered.values())


def _read_name(folder: str, name: str) -> TableName | None:
    try:
        return TableName.from_properties(
            name, OpenTables(folder).open_newest(name).metadata().configuration
        )
    except DeltaError:
        return None
