"""Drop an asset: remove all of its tables, so that its next run starts under a new identity.

The ledger and the check results keep their rows about the asset, under its old `Asset.table_id`.
The checkpoint of the asset's streaming query is removed first: otherwise the query would skip the
arrivals that the dropped tables had. The state is removed next: without a state, no run continues
from the other tables.
"""

from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.store.upkeep import checkpoints
from tidemark.store.upkeep.source_lock import shares_source
from tidemark.store.warehouse import Warehouse


@shares_source
def drop(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Remove an asset's tables, and return those that existed.

    No run of the asset may be in progress. After an interruption, call this function again.
    """
    checkpoints.remove(warehouse, transform.name)
    return [table for table in transform.tables if warehouse.drop(table)]


def drop_event_log(warehouse: Warehouse, source: DerivedSource) -> list[str]:
    """Remove the tables of a derived source, and return those that existed.

    No ingest of the source may be in progress. After an interruption, call this function again.
    """
    # The timeline goes first, because it determines which arrivals exist.
    order = dict.fromkeys([source.timeline_table, *source.tables])
    return [table for table in order if warehouse.drop(table)]
