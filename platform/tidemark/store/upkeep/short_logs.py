"""Keep transaction logs short while a stream runs, without waiting for the next maintenance.

Each commit lists its table's transaction log. A stream commits to each of its tables about twice a
second, so after half an hour a log has 4,000 entries, and a commit takes 15 ms longer. Of most
tables, only the newest version is read. Only published tables keep a history, which is shorter if
the table has many versions a second:

| table | entries that stay, in addition to those of the last `PERIOD` |
| --- | --- |
| timeline, dead letters, ledger, validation results | none |
| event log | those that a streaming query has not read yet |
| state | all, if a promotion of rebuilt tables can be rolled back |
| published tables | the newest `KEPT_VERSIONS`, and those that a mart has not read; see state |
| any other | all |
"""

import time
from contextlib import suppress

from tidemark.base import thresholds
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, LEDGER
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.upkeep.readers import versions_read
from tidemark.store.warehouse import Warehouse

PERIOD = 900_000_000
"""How long each entry stays, in microseconds. A process may have opened its version."""


KEPT_VERSIONS = 20_000
"""The number of newest versions that readers of a published table's changes can rely on.

A stream with two commits a second makes as many in three hours; a run each minute, in two weeks.
Each commit lists their log entries, which takes 20 to 40 ms.
"""


def of_source(warehouse: Warehouse, source: Source, arrival: int) -> None:
    """Shorten the logs of a source's tables, about once every `COMPACTION_COMMITS` arrivals.

    Args:
        arrival: the number of the newest arrival.
    """
    if arrival == 0 or arrival % thresholds.COMPACTION_COMMITS:
        return
    for table in (source.timeline_table, source.dead_letters_table):
        _shorten_log(warehouse, table)
    head = warehouse.find_head(source.log_table)
    if head is not None:
        _shorten_log(warehouse, source.log_table, versions_read(warehouse).get(head.table_id))


def of_asset(asset: Asset, commit: StateCommit) -> None:
    """Shorten the logs of the tables to which each run of an asset commits.

    This happens once every `COMPACTION_COMMITS` commits.

    Args:
        commit: the newest commit of the asset's state.
    """
    if commit.commit_number == 0 or commit.commit_number % thresholds.COMPACTION_COMMITS:
        return
    for table in (LEDGER, CHECKS):
        _shorten_log(asset.warehouse, table)
    if commit.promoted > asset.state.newest_forgotten_backup():
        return
    _shorten_log(asset.warehouse, asset.transform.state_table)
    for table in (asset.transform.published_table, asset.transform.panes_table):
        _shorten_history(asset.warehouse, table)


def _shorten_history(warehouse: Warehouse, table: str) -> None:
    head = warehouse.find_head(table)
    if head is None or head.version <= KEPT_VERSIONS:
        return
    unread = versions_read(warehouse).get(head.table_id, head.version)
    _shorten_log(warehouse, table, max(min(unread, head.version - KEPT_VERSIONS), 0))


def _shorten_log(warehouse: Warehouse, table: str, keep: int | None = None) -> None:
    # The commit is done even if this fails. `maintain_tables` reports the error.
    with suppress(Exception):
        warehouse.shorten_log(table, time.time_ns() // 1000 - PERIOD, keep)
