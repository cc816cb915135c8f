"""Errors in the definition of a join that only its first ingest detects."""

import pytest

from tidemark.base.errors import DataError
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

REGISTERED = False
SECOND = 1_000_000
LEFT, RIGHT = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "id": "STRING"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
RENAME = {"payments.t": "paid_at", "payments.id": "payment"}


def derived(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


@pytest.mark.parametrize("condition", ["l.amount > 1", "l.id >", "CAST(l.id AS INT) > 1"])
def test_a_condition_that_can_not_be_computed(warehouse: Warehouse, condition: str) -> None:
    source = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=Between("0 seconds", "1 second"),
        rename=RENAME,
        where=condition,
    )
    for base in (LEFT, RIGHT):
        arrival = ScenarioArrival(((0, "a", "x"),), 0)
        list(ingest(warehouse, MemoryConnector(base, [arrival])))
    with pytest.raises(DataError, match="The rows of 'paid' can't be computed") as refused:
        list(ingest(warehouse, derived(warehouse, source), batch=None))
    assert f"Correct where={condition!r}" in str(refused.value)
    assert Log(warehouse, source).timeline() == []
