"""How far readers of changes have read Tidemark's tables: marts and streaming queries.

They continue from there, so the later entries of a table's transaction log must stay. Other
readers, such as sinks, record their position elsewhere.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse


def versions_read(warehouse: Warehouse) -> dict[str, int]:
    """Return the version that each table's slowest reader of changes has reached.

    The keys are the identities of the tables.
    """
    slowest = dict[str, int]()
    for table, version in chain(_read_by_marts(warehouse), _read_by_queries(warehouse)):
        slowest[table] = min(version, slowest.get(table, version))
    return slowest


def _read_by_queries(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """Yield the identity of each table that a query reads, with the last version that it has read.

    A checkpoint has the version with which the query continues.
    """
    for table, version in checkpoints.read_offsets(warehouse):
        yield table, version - 1


def _read_by_marts(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """Yield the identity of each table that a mart reads, with the version that the mart has read.

    Each mart records these versions in a property (`dbt_project/macros/changes.sql`).
    """
    marts = warehouse.open_marts(registered=False)
    for mart in marts.list_tables():
        properties = _read_properties(marts, mart)
        versions: dict[str, Any] = json.loads(properties.get("tidemark.read", "{}"))
        # The other entry is the mart's code.
        for table, position in versions.items():
            if isinstance(position, list):
                yield table, position[0]


def _read_properties(marts: Warehouse, mart: str) -> dict[str, str]:
    """Return the properties of a mart; none if it was dropped in the meantime."""
    try:
        return marts.read_properties(mart)
    except Exception:
        if marts.find_head(mart) is None:
            return {}
        raise
