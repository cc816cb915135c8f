"""A restarted stream misses nothing; it keeps Spark's checkpoint or recreates it."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data.redefined import WIDER
from helpers.data.runs import left_behind, published_through
from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.run.change import rebuild as work
from tidemark.run.runner import backfill, incremental
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.streams import continuous

# Starts and stops several streams per test.
pytestmark = pytest.mark.slow

ARRIVALS = some_arrivals(count=6)


def caught_up(warehouse: Warehouse, transform: Definition) -> None:
    """Run the asset's stream until it has processed all arrivals."""
    query = continuous.start_query(warehouse, transform, available_now=True)
    query.awaitTermination(120)
    assert query.exception() is None


def test_a_stream_resumes_if_its_asset_is_behind_the_checkpoint(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens if the asset's tables were dropped, a rebuild was rolled back, or a run was not
    published."""
    ingest(warehouse, READINGS, ARRIVALS)
    caught_up(warehouse, PER_MINUTE)
    for table in PER_MINUTE.own_tables:
        warehouse.drop_table(table)
    caught_up(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)
    assert check_parity(warehouse, PER_MINUTE).is_equal
    for table in PER_MINUTE.own_tables:
        warehouse.drop_table(table)
    left_behind(warehouse, PER_MINUTE, monkeypatch)
    caught_up(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


@pytest.mark.nightly
def test_a_stream_processes_arrivals_between_promotion_and_rollback(
    warehouse: Warehouse,
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    incremental(warehouse, PER_MINUTE)
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    ingest(warehouse, READINGS, ARRIVALS[2:])
    caught_up(warehouse, WIDER)
    work.roll_back(warehouse, WIDER)
    caught_up(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


@pytest.mark.nightly
def test_a_roll_ups_stream_resumes_if_it_is_behind_its_base(
    warehouse: Warehouse,
) -> None:
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    # The second time, it reads the ledger's row of its own run.
    caught_up(warehouse, whole)
    caught_up(warehouse, whole)
    other = replace(whole, window=Tumbling("10 minutes"))
    caught_up(warehouse, other)
    assert check_parity(warehouse, other).is_equal
    for table in whole.own_tables:
        warehouse.drop_table(table)
    caught_up(warehouse, whole)
    assert check_parity(warehouse, whole).is_equal
    assert published_through(warehouse, whole) == 0


@pytest.mark.nightly
def test_a_stream_keeps_a_checkpoint_that_is_up_to_date(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    caught_up(warehouse, PER_MINUTE)
    query = continuous.start_query(warehouse, PER_MINUTE, available_now=True)
    query.awaitTermination(120)
    again = continuous.start_query(warehouse, PER_MINUTE, available_now=True)
    again.awaitTermination(120)
    assert again.id == query.id


@pytest.mark.nightly
def test_a_stream_over_another_table_starts_with_it(warehouse: Warehouse) -> None:
    """Covers a renamed source, a recreated event log, a roll-up with the asset's name, and an
    unreadable checkpoint."""
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    caught_up(warehouse, PER_MINUTE)
    others = replace(READINGS, name="others")
    over_others = replace(PER_MINUTE, source=others)
    ingest(warehouse, others, ARRIVALS)
    backfill(warehouse, over_others)
    caught_up(warehouse, over_others)
    assert published(warehouse, over_others) == reference(ARRIVALS)
    for table in (others.log_table, others.timeline_table, others.dead_letters_table):
        warehouse.drop_table(table)
    ingest(warehouse, others, ARRIVALS[:5])
    backfill(warehouse, over_others)
    caught_up(warehouse, over_others)
    assert published(warehouse, over_others) == reference(ARRIVALS[:5])
    base = replace(over_others, name="base")
    whole = rollup(of=base, name=PER_MINUTE.name, window=Tumbling("5 minutes"))
    drop_asset(warehouse, over_others)
    incremental(warehouse, base)
    caught_up(warehouse, whole)
    assert check_parity(warehouse, whole).is_equal
    for file in Path(continuous.checkpoint_path(warehouse, whole), "offsets").glob("[0-9]*"):
        file.write_text("")
    caught_up(warehouse, whole)
