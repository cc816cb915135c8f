"""Decide whether a stream may resume from its checkpoint.

Spark creates no batch for rows that its checkpoint has read, even if the asset has changed since.
The asset may have been dropped or rolled back, a run of it may have been killed before it
published, or a roll-up may have other windows now. Spark also refuses the checkpoint of another
table than the query reads: the source had another name, or its log was recreated. In both cases the
checkpoint is useless, and the query reads its table from the start.
"""

from tidemark.define.definition import Definition
from tidemark.run import takeover
from tidemark.store.asset import Asset
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse


def clear(warehouse: Warehouse, transform: Definition, table: str) -> None:
    """Remove the checkpoint of the asset's query if the query can't resume from it.

    The query must not run.

    Args:
        table: the table that the query reads.
    """
    if not _of(warehouse, transform, table) or _behind(warehouse, transform):
        checkpoints.remove(warehouse, transform.name)


def _of(warehouse: Warehouse, transform: Definition, table: str) -> bool:
    """Return whether the checkpoint belongs to that table and to no other."""
    head = warehouse.head(table)
    read_tables = {read.table for read in checkpoints.read(warehouse, transform.name)}
    return head is not None and read_tables == {head.table_id}


def _behind(warehouse: Warehouse, transform: Definition) -> bool:
    """Return whether the asset has not processed all arrivals, or not published all runs."""
    asset = Asset(warehouse, transform)
    last = asset.state.last()
    if asset.published_commit_number() < last.commit_number:
        return True
    if asset.rolls_up and takeover.is_renewed(asset):
        return True
    newest = None if asset.rolls_up else asset.log.last()
    return newest is not None and last.after.at.arrival < newest.arrival
