"""Replace all rows of an asset's tables by those of rebuilt tables, or of earlier versions.

The commit to the state is decisive. This commit replaces all partials, and records which version of
which table provides the rows of each other table. From then on, the swap is published like any
commit, with one commit per table. The next run finishes a swap that was interrupted, and needs no
definition for it. A kill at any point therefore leaves each table in its old or its new version.
The published table keeps its name, path and change data feed.

Delta keeps the files of earlier versions, so a backup is not a copy: it is the tables' own history.
"""

import time
import uuid
from dataclasses import replace

from pyspark.sql import DataFrame

from tidemark.base.failpoint import pass_fail_point
from tidemark.compute.materialize import temp_tables
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import MARKER
from tidemark.run import commit
from tidemark.run.table_copy import materialize_copy, replace_rows
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.commits.kinds import TableSwap
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse


def list_replaced(definition: Definition) -> list[str]:
    """Return the tables that a swap replaces after the state, in this order."""
    tables = list[str](definition.late_tables)
    tables += [definition.quarantine_table, definition.panes_table, definition.published_table]
    return tables


def list_versions(asset: Asset) -> dict[str, int]:
    """Return the newest version of each existing table of an asset, by the table's name."""
    names = [asset.transform.state_table, *list_replaced(asset.transform)]
    versions: dict[str, int] = {}
    for name in names:
        version = asset.warehouse.newest_version(name)
        if version >= 0:
            versions[name] = version
    return versions


def store_swap(asset: Asset, commit_info: TableSwap, state: tuple[str, int]) -> TableSwap:
    """Commit a swap to the asset's state, and return the record of the commit.

    Args:
        state: the name and the version of the state table that provides the partials: for a
            promotion, the rebuilt one; for a rollback, the asset's own, at an earlier version.

    Raises:
        ConflictError: another run took the commit's number first; nothing was stored.
    """
    begun = replace(commit_info, run=uuid.uuid4().hex, started=time.time_ns() // 1000)
    warehouse = asset.warehouse
    rows = warehouse.rows_at(*state)
    if isinstance(rows, DataFrame):
        rows = rows.where(f"{MARKER} IS NULL")
    else:
        rows = rows.filter(rows[MARKER].is_null())
    pass_fail_point("state")
    with temp_tables(warehouse) as temp_files:
        partials = materialize_copy(rows, temp_files, begun.commit_number)
        asset.state.store_commit(partials, begun, asset.start_epoch)
    return begun


def finish_swap(asset: Asset, commit_info: TableSwap) -> RunFacts:
    """Publish a swap that the state has. Tables that already have its rows stay as they are."""
    warehouse = asset.warehouse
    transform = asset.transform
    for table in transform.late_tables:
        pass_fail_point("late")
        _take_over(asset, commit_info, table)
    pass_fail_point("quarantine")
    _take_over(asset, commit_info, transform.quarantine_table)
    pass_fail_point("panes")
    _take_over(asset, commit_info, transform.panes_table)
    pass_fail_point("published")
    windows = _take_over(asset, commit_info, transform.published_table)
    pass_fail_point("ledger")
    warehouse.catalog.wait_until_registered()
    counts = asset.state.count_events(commit_info)
    quarantined = count_rows(warehouse, transform.quarantine_table)
    facts = commit.build_run_facts(
        asset, commit_info, counts, windows=windows, quarantined=quarantined
    )
    recorded = ledger.add_run(warehouse, facts, transform.own_tables)
    # The rebuilt tables are not needed any more. Drop the state first, as every drop does.
    for table, (source, _) in commit_info.taken.items():
        if source != table:
            warehouse.drop_table(source)
    return recorded


def _take_over(asset: Asset, commit_info: TableSwap, table: str) -> int:
    """Replace all rows of a table by the rows of the swap, and return the number of new rows.

    Return 0 if the table already has the swap.
    """
    warehouse = asset.warehouse
    if table not in commit_info.taken:
        # If the swap has no such table, this table gets no rows.
        if warehouse.has_table(table):
            empty = warehouse.read_schema(table).empty_table()
            warehouse.replace_rows(
                empty,
                table,
                "TRUE",
                asset.commit_app,
                commit_info.commit_number,
                epoch=asset.start_epoch,
            )
        return 0
    if warehouse.transaction_version(table, asset.commit_app) >= commit_info.commit_number:
        return 0
    published = table == asset.transform.published_table
    replaced = replace_rows(
        warehouse,
        table,
        commit_info.taken[table],
        (asset.commit_app, commit_info.commit_number),
        renumber=True,
        description=asset.transform.description if published else "",
        feed=published,
        epoch=asset.start_epoch,
    )
    return replaced or 0


def count_rows(warehouse: Warehouse, table: str) -> int:
    """Return how many rows a table has; 0 if it does not exist."""
    return (
        warehouse.load_rows(table, columns=["commit_number"]).num_rows
        if warehouse.has_table(table)
        else 0
    )
