"""Dropping an asset: all of its tables go, and its next run begins a new life.

What the ledger and the results tell of it stays, under the life that has ended (`Asset.life`). The
state goes first: without it, nothing else is gone on with.
"""

import pyarrow.fs as pafs

from tidemark.define.rollup import RollUp
from tidemark.define.transform import WindowedTransform
from tidemark.store.committers.staged import file_system
from tidemark.store.maintenance import CHECKPOINTS
from tidemark.store.warehouse import Warehouse


def tables_of(transform: WindowedTransform) -> list[str]:
    """The tables that an asset alone writes, in the order in which they go."""
    side = [transform.table, transform.panes_table, transform.quarantine_table]
    if isinstance(transform, RollUp):
        # The state is its base's.
        return side
    return [transform.state_table, *side, transform.late_table, transform.late_loss_table]


def drop(warehouse: Warehouse, transform: WindowedTransform) -> list[str]:
    """Remove an asset's tables; those that were there. No run of it may be under way.

    A drop that was interrupted is done again.
    """
    gone = [table for table in tables_of(transform) if warehouse.drop(table)]
    checkpoint = f"{CHECKPOINTS}/{transform.name}"
    system, path = file_system(warehouse.path(checkpoint))
    if system.get_file_info(path).type == pafs.FileType.Directory:
        warehouse.remove(checkpoint)
    return gone
