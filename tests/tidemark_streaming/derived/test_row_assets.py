"""The event log of a row asset has the prepared rows of its source exactly once, in any cut."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.define import aggregates as agg
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.source import Source
from tidemark.define.transform import windowed_asset
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
ORDERS = Source(
    name="orders",
    columns={"t": "TIMESTAMP", "city": "STRING", "items": "INT"},
    event_time="t",
    watermark=BoundedOutOfOrderness("2 seconds"),
    lookups=("countries",),
)


@row_asset(source=ORDERS, columns={"t": "TIMESTAMP", "country": "STRING", "item": "BIGINT"})
def items(orders: DataFrame, countries: DataFrame) -> DataFrame:
    """One row for each item that is not ordered in Bern, with the country."""
    numbers = F.sequence(F.lit(1).cast("bigint"), F.col("items").cast("bigint"))
    known = orders.where("items > 0 AND city <> 'Bern'").join(countries, "city", "left")
    return known.withColumn("item", F.explode(numbers))


@row_asset(source=items)
def first_items(items: DataFrame) -> DataFrame:
    return items.where("item = 1")


@windowed_asset(
    source=first_items,
    keys=["country"],
    window=Tumbling("5 seconds"),
    aggregates={"orders": agg.count()},
)
def orders_by_country(first_items: DataFrame) -> DataFrame:
    return first_items


def some_arrivals(chance: random.Random) -> list[ScenarioArrival]:
    found = list[ScenarioArrival]()
    for clock in range(9):
        rows = [
            (chance.randint(0, 20) * SECOND, chance.choice(["Ulm", "Bern", "Wien"]), items)
            for items in chance.choices(range(4), k=chance.choice([0, 1, 5]))
        ]
        found.append(ScenarioArrival(tuple(rows), clock))
    return [*found, ScenarioArrival(((None, "Ulm", 1),), 9, ends=True)]


def derive(warehouse: Warehouse, source: DerivedSource, batch: int | None) -> None:
    connector = DerivedConnector(source, warehouse.location, warehouse.database)
    list(ingest(warehouse, connector, batch=batch))


def test_prepared_rows_land_exactly_once_in_any_cut(warehouse: Warehouse) -> None:
    chance = random.Random(1)
    countries = [("Ulm", "DE"), ("Wien", "AT")]
    table = warehouse.spark.createDataFrame(countries, "city STRING, country STRING")
    warehouse.ensure_table("countries", table)
    warehouse.append_rows(table, "countries", "test", 0)
    arrivals = some_arrivals(chance)
    for given in (3, 6, len(arrivals)):
        list(ingest(warehouse, MemoryConnector(ORDERS, arrivals[:given]), batch=None))
        derive(warehouse, items, chance.choice([1, 2, None]))
        derive(warehouse, first_items, chance.choice([1, 2, None]))
        incremental(warehouse, orders_by_country)

    wanted = [
        (number, position, city, item)
        for number, arrival in enumerate(arrivals)
        for position, (_, city, count) in enumerate(arrival.rows)
        for item in range(1, count + 1)
        if city != "Bern"
    ]
    of = dict(countries)
    rows = warehouse.load_rows(items.log_table).to_pylist()
    assert sorted(
        (r["arrival"], r["origin_position"], r["country"], r["item"]) for r in rows
    ) == sorted((n, position, of[city], item) for n, position, city, item in wanted)
    assert all(r["origin_arrival"] == r["arrival"] for r in rows)
    places = sorted((r["arrival"], r["position"]) for r in rows)
    counts = [sum(n == row[0] for row in wanted) for n in range(len(arrivals))]
    assert places == [(n, place) for n, count in enumerate(counts) for place in range(count)]

    bases, own = (Log(warehouse, each).read_timeline() for each in (ORDERS, first_items))
    assert [a.after for a in own] == [a.after for a in bases]
    assert own[-1].after == INFINITY
    assert len(warehouse.load_rows(first_items.log_table)) == sum(row[3] == 1 for row in wanted)
    for each in (items, first_items):
        assert check_derived_parity(warehouse, each).is_equal
    found = check_parity(warehouse, orders_by_country)
    assert found.is_equal
    late = len(warehouse.load_rows(orders_by_country.late_table))
    windows = warehouse.load_rows(orders_by_country.published_table)
    assert sum(windows["orders"].to_pylist()) + late == sum(row[3] == 1 for row in wanted)


WRONG: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "duplicates": (lambda r: r.dropDuplicates(["city"]), "its function removes duplicates"),
    "unknown column": (
        lambda r: r.where("amount > 1"),
        "can't analyze its function on the columns of 'orders': .*amount",
    ),
    "drops the time": (lambda r: r.drop("t"), "has no column 't'"),
    "another type": (
        lambda r: r.withColumn("items", F.col("items") * 0.5),
        "the column 'items' of its function's result has the type .*, but is declared as int",
    ),
    "missing return": (lambda _: None, "Is its `return` missing"),
}


@pytest.mark.parametrize("case", mostly_nightly(WRONG, 2))
def test_a_function_that_is_not_possible_is_refused(warehouse: Warehouse, case: str) -> None:
    function, message = WRONG[case]
    base = replace(ORDERS, lookups=())

    def odd(orders: DataFrame) -> Any:  # noqa: ANN401
        return function(orders)

    list(ingest(warehouse, MemoryConnector(base, [ScenarioArrival(((0, "Ulm", 1),), 0)])))
    with pytest.raises(DefinitionError, match=message):
        derive(warehouse, row_asset(source=base)(odd), None)


def unchanged(orders: DataFrame) -> DataFrame:
    return orders


def test_columns_that_are_not_possible_are_refused() -> None:
    columns = {"t": "TIMESTAMP", "origin_arrival": "BIGINT"}
    with pytest.raises(DefinitionError, match="'origin_arrival' can't have this name"):
        row_asset(source=ORDERS, columns=columns)(unchanged)
    with pytest.raises(DefinitionError, match="the event-time column 't' is not among"):
        row_asset(source=ORDERS, columns={"city": "STRING"})(unchanged)
