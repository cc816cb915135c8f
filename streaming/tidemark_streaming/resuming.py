"""Whether a stream may go on where its checkpoint stands.

Spark makes no batch of what its checkpoint has read, whatever has become of the asset since: it was
dropped, switched back, or a run of it was killed before it had published, or it is a roll-up that
has other windows now. And Spark refuses a checkpoint of another table than the query follows: of a
source that had another name, or whose log was made anew. In both cases the checkpoint is of no use,
and the query reads its table again.
"""

from tidemark.define.definition import Definition
from tidemark.run import takeover
from tidemark.store import checkpoints
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse


def clear(warehouse: Warehouse, transform: Definition, table: str) -> None:
    """Remove the checkpoint of the transform's query, which must not run, where it can't go on
    with that.

    Args:
        table: that which the query follows.
    """
    if not _of(warehouse, transform, table) or _behind(warehouse, transform):
        checkpoints.remove(warehouse, transform.name)


def _of(warehouse: Warehouse, transform: Definition, table: str) -> bool:
    """Whether the checkpoint tells of that table, and of no other."""
    head = warehouse.head(table)
    told = {read.table for read in checkpoints.read(warehouse, transform.name)}
    return head is not None and told == {head.life}


def _behind(warehouse: Warehouse, transform: Definition) -> bool:
    """Whether there is something that the asset has not taken in, or not published."""
    asset = Asset(warehouse, transform)
    last = asset.state.last()
    if asset.published() < last.seq:
        return True
    if asset.rolls_up and takeover.renews(asset):
        return True
    newest = None if asset.rolls_up else asset.log.last()
    return newest is not None and last.after.at.arrival < newest.arrival
