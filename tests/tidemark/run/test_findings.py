"""Tests of cases in which rows could be lost or misreported, and that no other test covers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.data.support import (
    PER_MINUTE,
    filtered_by_nothing,
    ingest,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DefinitionChangedError
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.run import commit, execution
from tidemark.run.runner import incremental
from tidemark.store.catalog import Catalog
from tidemark.store.rows import to_frame
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

REGISTERED = True
ARRIVALS = some_arrivals(count=6)
FIVE = rollup(of=renamed(PER_MINUTE, "fives"), window=Tumbling("5 minutes"), name="of_fives")


class _Killed(BaseException):
    """The simulated death of a run's process."""


def _killed_before(patch: pytest.MonkeyPatch, step: Callable[..., Any]) -> None:
    def killed(*_: object, **__: object) -> None:
        raise _Killed

    patch.setattr(commit, step.__name__, killed)


def _left_behind(warehouse: Warehouse, patch: pytest.MonkeyPatch) -> None:
    """Leave an asset whose newest commit another process has stored but not published."""
    ingest(warehouse, PER_MINUTE.source, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)
    ingest(warehouse, PER_MINUTE.source, ARRIVALS[3:], ends=False)
    with patch.context() as dying:
        _killed_before(dying, commit.publish_rows)
        with pytest.raises(_Killed):
            incremental(Warehouse(warehouse.spark, *warehouse.place), PER_MINUTE)


def test_an_unpublished_commit_is_published_without_new_arrivals(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 14."""
    _left_behind(warehouse, monkeypatch)
    before = warehouse.newest_version(PER_MINUTE.published_table)
    assert incremental(warehouse, PER_MINUTE) is None
    assert warehouse.newest_version(PER_MINUTE.published_table) > before
    assert check_parity(warehouse, PER_MINUTE).is_equal


# Once for each table.
@pytest.mark.slow
@pytest.mark.parametrize(
    "table", mostly_nightly(["per_minute", "readings_timeline", "per_minute_state", "runs"])
)
def test_a_table_whose_creator_was_killed_is_registered(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Readers that use table names, such as marts, would otherwise never find it."""
    enter = Catalog._register_now

    def killed(self: Catalog, name: str) -> None:
        if name == table:
            raise _Killed
        enter(self, name)

    def work(on: Warehouse) -> None:
        ingest(on, PER_MINUTE.source, ARRIVALS[:3], ends=False)
        incremental(on, PER_MINUTE)

    with monkeypatch.context() as dying:
        dying.setattr(Catalog, "_register_now", killed)
        with pytest.raises(_Killed):
            work(Warehouse(warehouse.spark, *warehouse.place))
    place = f"`{warehouse.database}`.`{table}`"
    assert not warehouse.spark.catalog.tableExists(place)
    work(warehouse)
    assert warehouse.spark.catalog.tableExists(place)
    assert check_parity(warehouse, PER_MINUTE).is_equal


# Waits for a stream.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_with_an_earlier_definition_stops_without_writing(
    warehouse: Warehouse,
) -> None:
    """Finding 4."""
    ingest(warehouse, PER_MINUTE.source, ARRIVALS[:2], ends=False)
    incremental(warehouse, PER_MINUTE)
    changed = replace(PER_MINUTE, function=filtered_by_nothing)
    ingest(warehouse, PER_MINUTE.source, ARRIVALS[2:3], ends=False)
    incremental(warehouse, changed)
    ingest(warehouse, PER_MINUTE.source, ARRIVALS[3:], ends=False)
    tables = [PER_MINUTE.published_table, PER_MINUTE.state_table]
    before = [warehouse.newest_version(table) for table in tables]
    with pytest.raises(DefinitionChangedError, match=r"an earlier definition of .*, so it ends"):
        incremental(warehouse, PER_MINUTE, pinned_definition=True)
    assert [warehouse.newest_version(table) for table in tables] == before
    assert incremental(warehouse, changed, pinned_definition=True) is not None


def test_parity_compares_the_published_commit(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 11."""
    _left_behind(warehouse, monkeypatch)
    report = check_parity(warehouse, PER_MINUTE)
    assert report.as_of == 2
    assert report.is_equal


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_publishes_validated_rows_while_its_base_advances(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 10."""
    base = FIVE.base
    ingest(warehouse, base.source, ARRIVALS[:3], ends=False)
    incremental(warehouse, base)
    judge, judged = execution.validate_and_split, list[Any]()

    def gate(batch: Any, rows: Any) -> Any:  # noqa: ANN401 (passed on)
        passed = judge(batch, rows)
        if batch.transform is FIVE and not judged:
            judged.append(fetch_dataframe(to_frame(warehouse.spark, rows)))
            ingest(warehouse, base.source, ARRIVALS[3:])
            incremental(warehouse, base)
        return passed

    monkeypatch.setattr(execution, "validate_and_split", gate)
    incremental(warehouse, FIVE)
    told = judged[0].select(["window_start", "sensor", "events"]).to_pylist()
    published = (
        warehouse.load_rows(FIVE.published_table)
        .select(["window_start", "sensor", "events"])
        .to_pylist()
    )
    order = lambda row: (row["window_start"], str(row["sensor"]))  # noqa: E731
    assert sorted(published, key=order) == sorted(told, key=order)
    assert check_parity(warehouse, FIVE).is_equal
    incremental(warehouse, FIVE)
    assert check_parity(warehouse, FIVE).is_equal
