"""A promotion of a derived source that another machine repeats while the first one is paused."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.data.landing import put
from helpers.data.orders import ORDERS, PAYMENTS
from helpers.processes.paused_promotion import MOVEMENTS, paused_promotion
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.event_log.log import Log
from tidemark.store.integrity import table_check
from tidemark.store.operations import find_unfinished
from tidemark.store.rows import to_dicts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.derived.rebuild import promote_source, rebuild_source
from tidemark_streaming.files.connector import FileConnector
from tidemark_streaming.ingest.ingest import ingest

POINTS = [
    "promoted_begun",
    f"before {MOVEMENTS.log_table}",
    f"before {MOVEMENTS.timeline_table}",
    "promoted_log",
    "promoted_rows",
    f"before {MOVEMENTS.dead_letters_table}",
    "promoted_timeline",
    "promoted_end",
]
"""Where the first promotion is paused: between two steps, and within a step just before its commit.
"""


def arrive(warehouse: Warehouse, landing: Path, source: Source, second: int) -> None:
    """Ingest an arrival with one event."""
    folder = f"{landing}/{source.name}"
    put(folder, f"{second}.json", f'{{"t": "2024-01-01T00:00:{second:02}Z", "k": "a", "v": 1}}\n')
    assert list(ingest(warehouse, FileConnector(source, folder)))


def take(warehouse: Warehouse) -> None:
    """Ingest the pending arrivals of the derived source."""
    connector = DerivedConnector(MOVEMENTS, warehouse.location, warehouse.database)
    assert list(ingest(warehouse, connector, batch=None))


def rows(warehouse: Warehouse) -> Mapping[str, list[dict[str, Any]]]:
    """Return the rows of the published tables of the derived source."""
    tables = (MOVEMENTS.log_table, MOVEMENTS.dead_letters_table, MOVEMENTS.timeline_table)
    contents = dict[str, list[dict[str, Any]]]()
    for table in tables:
        contents[table] = sorted(to_dicts(warehouse.load_rows(table)), key=str)
    return contents


# Each case needs the engine, and waits for a lease.
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_paused_promotion_that_another_machine_repeats_changes_nothing(
    engine: Settings, warehouse: Warehouse, tmp_path: Path, point: str
) -> None:
    arrive(warehouse, tmp_path, ORDERS, 1)
    arrive(warehouse, tmp_path, PAYMENTS, 2)
    take(warehouse)
    for _ in rebuild_source(warehouse, MOVEMENTS):
        pass
    with paused_promotion(engine, warehouse, point) as paused:
        arrive(warehouse, tmp_path, ORDERS, 30)
        promote_source(warehouse, MOVEMENTS)
        arrive(warehouse, tmp_path, PAYMENTS, 40)
        take(warehouse)
        before = rows(warehouse)
        # Another rebuild has begun when the first promotion continues.
        for _ in rebuild_source(warehouse, MOVEMENTS):
            pass
        paused.send_signal(signal.SIGCONT)
        _, messages = paused.communicate(timeout=60)
    assert rows(warehouse) == before
    folder = warehouse.path_of("").removeprefix("file://").rstrip("/")
    assert table_check.find_damage(folder, [ORDERS, PAYMENTS, MOVEMENTS], []) == []
    assert find_unfinished(folder) == []
    assert "Another process has taken over 'movements'" in messages
    assert warehouse.has_table(f"{MOVEMENTS.name}__rebuild_log")
    arrive(warehouse, tmp_path, ORDERS, 50)
    take(warehouse)
    assert check_derived_parity(warehouse, MOVEMENTS).is_equal
    assert Log(warehouse, MOVEMENTS).find_last_arrival() is not None
