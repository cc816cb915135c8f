"""Dropping an asset: all of its tables go, and its next run begins a new life.

What the ledger and the results tell of it stays, under the life that has ended (`Asset.life`). The
checkpoint of its stream goes first, which would pass over what the tables had; then the state:
without it, nothing else is gone on with.
"""

from tidemark.define.definition import Definition
from tidemark.store import checkpoints
from tidemark.store.warehouse import Warehouse


def drop(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Remove an asset's tables; those that were there. No run of it may be under way.

    A drop that was interrupted is done again.
    """
    checkpoints.remove(warehouse, transform.name)
    return [table for table in transform.tables if warehouse.drop(table)]
