"""Swaps: the tables of an asset take over the rows of others that are whole: those that a rebuild
made beside them, or their own of an earlier version.

The state's commit is what decides: it takes the partials over in one commit, and says of which
versions of which tables the other tables' rows are to be. From then on the swap is published like
any commit, each table in one commit of its own, and whoever comes first goes on with one that was
left behind: it asks for no definition. So a kill at any point leaves each table as it was or as it
is to be, and the published table's name, path and change feed stay.

A file of a Delta table outlives its removal, so nothing is copied to be kept: what was there before
is the tables' own history.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base.failpoint import reach
from tidemark.compute.held import Scratch, scratch
from tidemark.define.definition import Definition
from tidemark.engine.varying import varying
from tidemark.run import facts
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.marker import Marker
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse


def others(transform: Definition) -> list[str]:
    """The tables that a swap brings along beside the state, in the order in which they follow."""
    quarantine, panes = transform.quarantine_table, transform.panes_table
    return [*transform.late_tables, quarantine, panes, transform.table]


def versions(asset: Asset) -> dict[str, int]:
    """The newest versions of an asset's tables, of those that are there."""
    names = [asset.transform.state_table, *others(asset.transform)]
    found = {name: asset.warehouse.version(name) for name in names}
    return {name: version for name, version in found.items() if version >= 0}


def store(asset: Asset, marker: Marker, state: tuple[str, int]) -> Marker:
    """Commit a swap to the state, with the partials that a version of a state table has.

    Raises:
        ConflictError: another run took the commit's number first; nothing was stored.
    """
    begun = replace(marker, run=uuid.uuid4().hex, started=time.time_ns() // 1000)
    warehouse = asset.warehouse
    rows = warehouse.rows_at(*state)
    if isinstance(rows, DataFrame):
        rows = rows.where("marker IS NULL")
    else:
        rows = rows.filter(rows["marker"].is_null())
    reach("state")
    with scratch(warehouse) as place:
        asset.state.commit(_held(rows, begun.seq, place), begun)
    return begun


def finish(asset: Asset, marker: Marker) -> RunFacts:
    """Publish a swap that the state has: what it published before stays as it is."""
    warehouse, taken = asset.warehouse, marker.swap.taken if marker.swap else {}
    windows = 0
    for table, step in zip(others(asset.transform), _steps(asset.transform), strict=True):
        reach(step)
        done = _take_over(asset, marker, table, taken)
        if table == asset.transform.table:
            windows = done
    reach("ledger")
    warehouse.catalog.entered()
    counts, quarantine = asset.state.counts(marker), asset.transform.quarantine_table
    held = count(warehouse, quarantine)
    found = facts.of_commit(asset, marker, counts, windows=windows, quarantined=held)
    told = ledger.append(warehouse, found, asset.transform.tables)
    # What was made beside has no use any more; the state first, as whatever is dropped.
    for table, (source, _) in taken.items():
        if source != table:
            warehouse.drop(source)
    return told


def _steps(transform: Definition) -> list[str]:
    return [*("late" for _ in transform.late_tables), "quarantine", "panes", "published"]


def _take_over(
    asset: Asset, marker: Marker, table: str, taken: Mapping[str, tuple[str, int]]
) -> int:
    """Put what a table is to have in the place of all that it has; how many rows were put."""
    warehouse = asset.warehouse
    if table not in taken:
        # What is not there beside has no row here.
        if warehouse.exists(table):
            empty = warehouse.schema(table).empty_table()
            warehouse.replace(empty, table, "TRUE", asset.app, marker.seq)
        return 0
    if warehouse.transaction(table, asset.app) >= marker.seq:
        return 0
    rows = warehouse.rows_at(*taken[table])
    feed = table == asset.transform.table
    warehouse.create(table, rows, asset.transform.description if feed else "", feed=feed)
    with scratch(warehouse) as place:
        held = _held(rows, marker.seq, place)
        return warehouse.replace(held, table, "TRUE", asset.app, marker.seq) or 0


def _held(rows: Rows, seq: int, place: Scratch) -> Rows:
    """Rows as those of another commit, where they say of which they are."""
    if isinstance(rows, DataFrame):
        numbered = rows.withColumn("seq", varying(seq)) if "seq" in rows.columns else rows
        return place.hold(numbered, few=False)
    if "seq" not in rows.column_names:
        return rows
    numbers = pa.array([seq] * rows.num_rows, pa.int64())
    return rows.set_column(rows.column_names.index("seq"), "seq", numbers)


def count(warehouse: Warehouse, table: str) -> int:
    """How many rows a table has; none where there is no table."""
    return warehouse.take(table, columns=["seq"]).num_rows if warehouse.exists(table) else 0
