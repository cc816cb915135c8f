"""How far readers of changes have read Tidemark's tables: marts and streaming queries.

They continue from there, so the later entries of a table's transaction log must stay. Other
readers, such as sinks, record their position elsewhere.
"""

import json
from collections.abc import Iterator
from typing import Any

from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse


def versions_read(warehouse: Warehouse) -> dict[str, int]:
    """Return the version that each table's slowest reader of changes has reached.

    The keys are the identities of the tables.
    """
    found: dict[str, int] = {}
    by_queries = ((table, version - 1) for table, version in checkpoints.read(warehouse))
    for table, version in [*_read_by_marts(warehouse), *by_queries]:
        found[table] = min(version, found.get(table, version))
    return found


def _read_by_marts(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """Yield the identity of each table that a mart reads, with the version that the mart has read.

    Each mart records these versions in a property (`dbt_project/macros/changes.sql`).
    """
    marts = warehouse.marts(registered=False)
    for mart in marts.tables():
        properties = _properties(marts, mart)
        versions: dict[str, Any] = json.loads(properties.get("tidemark.read", "{}"))
        # The other entry is the mart's code.
        yield from ((table, at[0]) for table, at in versions.items() if isinstance(at, list))


def _properties(marts: Warehouse, mart: str) -> dict[str, str]:
    """Return the properties of a mart; none if it was dropped in the meantime."""
    try:
        return marts.properties(mart)
    except Exception:
        if marts.head(mart) is None:
            return {}
        raise
