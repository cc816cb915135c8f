"""Find the table versions that readers may still need, so that maintenance keeps them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tidemark.define.tables import Role, TableName
from tidemark.store.commits.kinds import Promotion
from tidemark.store.state import State
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse

_T = TypeVar("_T")


def run_unless_dropped(warehouse: Warehouse, table: str, look: Callable[[str], _T]) -> _T | None:
    """Return `look(table)`; None if the table was dropped in the meantime."""
    try:
        return look(table)
    except Exception:
        if warehouse.head(table) is None:
            return None
        raise


def versions_for_rollback(
    warehouse: Warehouse, tables: Iterable[TableName], since: int
) -> dict[str, int]:
    """Return the versions that tables had before promotions since an instant, by table name."""

    def before(table: str) -> dict[str, int]:
        state = State.from_table(warehouse, table)
        promoted = state.last().promoted
        if promoted <= state.forgotten():
            return {}
        commit = state.at(promoted)
        return (
            dict(commit.kept) if isinstance(commit, Promotion) and commit.started >= since else {}
        )

    found: dict[str, int] = {}
    for table in (t for t in tables if t.role is Role.STATE):
        found |= run_unless_dropped(warehouse, table, before) or {}
    return found


def versions_in_arrivals(warehouse: Warehouse, tables: Iterable[TableName]) -> dict[str, set[int]]:
    """Return the versions of tables that arrivals have recorded, by table name."""
    found: dict[str, set[int]] = defaultdict(set)
    for timeline in (t for t in tables if t.role is Role.TIMELINE):
        arrivals = run_unless_dropped(warehouse, timeline, warehouse.take)
        texts = [] if arrivals is None else arrivals["lookups"].unique().to_pylist()
        for name, version in (pair for text in texts for pair in json.loads(text).items()):
            found[name].add(int(version))
    return found


def versions_read(warehouse: Warehouse) -> dict[str, int]:
    """Return, for each table, the version that its slowest reader of changes has reached.

    The keys are the tables' identities.
    """
    found: dict[str, int] = {}
    for table, version in [*_read_by_marts(warehouse), *_read_by_queries(warehouse)]:
        found[table] = min(version, found.get(table, version))
    return found


def _read_by_marts(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """Yield the versions that marts (`dbt_project/macros/changes.sql`) recorded as properties."""
    marts = warehouse.marts(registered=False)
    for mart in marts.tables():
        properties = run_unless_dropped(marts, mart, marts.properties) or {}
        versions: dict[str, Any] = json.loads(properties.get("tidemark.read", "{}"))
        yield from ((table, at) for table, at in versions.items() if isinstance(at, int))


def _read_by_queries(warehouse: Warehouse) -> Iterator[tuple[str, int]]:
    """Yield, from the checkpoints, the last version that each streaming query has read."""
    yield from ((table, version - 1) for table, version in checkpoints.read(warehouse))
