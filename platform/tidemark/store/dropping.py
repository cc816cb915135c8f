"""Dropping an asset: all of its tables go, and its next run begins a new life.

What the ledger and the results tell of it stays, under the life that has ended (`Asset.life`). The
state goes first: without it, nothing else is gone on with.
"""

import pyarrow.fs as pafs

from tidemark.define.definition import Definition
from tidemark.store.committers.staged import file_system
from tidemark.store.needed import CHECKPOINTS
from tidemark.store.warehouse import Warehouse


def drop(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Remove an asset's tables; those that were there. No run of it may be under way.

    A drop that was interrupted is done again.
    """
    gone = [table for table in transform.tables if warehouse.drop(table)]
    checkpoint = f"{CHECKPOINTS}/{transform.name}"
    system, path = file_system(warehouse.path(checkpoint))
    if system.get_file_info(path).type == pafs.FileType.Directory:
        warehouse.remove(checkpoint)
    return gone
