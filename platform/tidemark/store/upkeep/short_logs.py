"""Keep transaction logs short while a stream runs, without waiting for the next maintenance.

Each commit lists its table's transaction log. A stream commits to each of its tables about twice a
second, so after half an hour a log has 4,000 entries, and a commit takes 15 ms longer. Of most
tables, only the newest version is read:

| table | entries that stay, in addition to those of the last `PERIOD` |
| --- | --- |
| timeline, dead letters, ledger, validation results | none |
| event log | those that a streaming query has not read yet |
| state | all, if a promotion of rebuilt tables can be rolled back |
| any other | all: users read its changes, and its earlier versions |
"""

import time
from contextlib import suppress

from tidemark.base import thresholds
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, LEDGER
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse

PERIOD = 900_000_000
"""How long each entry stays, in microseconds. A process may have opened its version."""


def of_source(warehouse: Warehouse, source: Source, arrival: int) -> None:
    """Shorten the logs of a source's tables, about once every `COMPACTION_COMMITS` arrivals.

    Args:
        arrival: the number of the newest arrival.
    """
    if arrival == 0 or arrival % thresholds.COMPACTION_COMMITS:
        return
    for table in (source.timeline_table, source.dead_letters_table):
        _shorten(warehouse, table)
    head = warehouse.head(source.log_table)
    if head is not None:
        read = [r.version for r in checkpoints.read(warehouse) if r.table == head.table_id]
        _shorten(warehouse, source.log_table, min(read, default=None))


def of_asset(asset: Asset, commit: StateCommit) -> None:
    """Shorten the logs of the tables to which each run of an asset commits.

    This happens once every `COMPACTION_COMMITS` commits.

    Args:
        commit: the newest commit of the asset's state.
    """
    if commit.commit_number == 0 or commit.commit_number % thresholds.COMPACTION_COMMITS:
        return
    for table in (LEDGER, CHECKS):
        _shorten(asset.warehouse, table)
    if commit.promoted <= asset.state.forgotten():
        _shorten(asset.warehouse, asset.transform.state_table)


def _shorten(warehouse: Warehouse, table: str, keep: int | None = None) -> None:
    # The commit is done even if this fails. `maintain` reports the error.
    with suppress(Exception):
        warehouse.shorten_log(table, time.time_ns() // 1000 - PERIOD, keep)
