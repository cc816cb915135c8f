"""Tests of the operations that a transform's function may use: those that work row by row."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE, READINGS, some_arrivals
from helpers.data.support import ingest as bring
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DefinitionError
from tidemark.compute import windowing
from tidemark.compute.events.plan_check import check_function
from tidemark.define import aggregates as agg
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

Function = Callable[[DataFrame, DataFrame], DataFrame]
SOURCE = replace(READINGS, lookups=("places",))


@pytest.fixture(scope="module")
def log(shared: Warehouse) -> Log:
    bring(shared, READINGS, some_arrivals(count=1))
    places = shared.spark.createDataFrame([("a", "east")], "sensor STRING, place STRING")
    places.write.format("delta").save(shared.path_of("places"))
    return Log(shared, SOURCE)


def checked(log: Log, function: Function) -> None:
    def prepare(rows: DataFrame, places: DataFrame) -> DataFrame:
        return function(rows, places)

    check_function(log, replace(PER_MINUTE, source=SOURCE, function=prepare).preparation)


def doubled(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        yield batch.assign(value=batch["value"] * 2)


ALLOWED: dict[str, Function] = {
    "nothing": lambda r, p: r,
    "columns": lambda r, p: r.withColumn("v", F.col("value") * 2).fillna(0).drop("v"),
    "many columns": lambda r, p: r.withColumns({f"c{n}": F.lit(n) for n in range(60)}),
    "a filter": lambda r, p: r.where("value > 0.5 AND sensor IN ('a', 'b')"),
    "an explosion": lambda r, p: r.withColumn("part", F.explode(F.array(F.lit(1), F.lit(2)))),
    "the rows twice": lambda r, p: r.unionByName(r.where("value > 0.5")),
    "a Python function": lambda r, p: r.mapInPandas(doubled, r.schema),
    "a left join": lambda r, p: r.join(p, "sensor", "left"),
    "an inner join": lambda r, p: p.join(F.broadcast(r), "sensor"),
    "a right join": lambda r, p: p.join(r, "sensor", "right"),
    "a semi-join": lambda r, p: r.join(p, "sensor", "left_semi"),
    "an anti-join": lambda r, p: r.join(p, "sensor", "left_anti"),
    "an aggregated reference": lambda r, p: r.join(
        p.groupBy("sensor").agg(F.max("place").alias("place")).orderBy("place"), "sensor", "left"
    ),
    "a list of its own": lambda r, p: r.join(r.sparkSession.range(3), F.col("id") == 1),
}
REFUSED: dict[str, tuple[Function, str]] = {
    "an aggregate": (
        lambda r, p: r.join(r.groupBy("sensor").agg(F.max("value").alias("most")), "sensor"),
        "joins the stream with itself",
    ),
    "distinct rows": (
        lambda r, p: r.dropDuplicates(["sensor"]),
        r"\(declare `deduplicate` for this\)",
    ),
    "a rank": (
        lambda r, p: r.withColumn(
            "n", F.row_number().over(Window.partitionBy("sensor").orderBy("ts"))
        ),
        "uses a window function over the stream",
    ),
    "an order": (lambda r, p: r.orderBy("ts"), "sorts the stream"),
    "a limit": (lambda r, p: r.limit(3), "limits the number of rows"),
    "a sample": (lambda r, p: r.sample(0.5), "samples rows at random"),
    "partitions": (lambda r, p: r.repartition(3), "repartitions the stream"),
    "a full join": (lambda r, p: r.join(p, "sensor", "full"), r"joins \(FullOuter\)"),
    "a right join": (lambda r, p: r.join(p, "sensor", "right"), r"joins \(RightOuter\)"),
    "a difference": (lambda r, p: r.exceptAll(r.limit(1)), "uses Except on the stream"),
    "rows of its own": (
        lambda r, p: r.unionByName(
            p.select(F.col("place").alias("sensor")), allowMissingColumns=True
        ),
        "adds rows that are not from the stream",
    ),
    "chance": (
        lambda r, p: r.withColumns({f"c{n}": F.lit(n) for n in range(60)} | {"x": F.rand()}),
        r"calls rand\(\), which returns another value each time",
    ),
    "the time of day": (
        lambda r, p: r.withColumn("age", F.current_timestamp() - F.col("ts")),
        r"calls current_timestamp\(\)",
    ),
    "another table": (
        lambda r, p: r.join(r.sparkSession.read.format("delta").load(PATH[0]), "sensor"),
        "reads a table whose version is not recorded",
    ),
}
PATH: list[str] = []


@pytest.mark.parametrize("name", mostly_nightly(ALLOWED, 5))
def test_a_function_may_work_row_by_row(log: Log, name: str) -> None:
    checked(log, ALLOWED[name])


@pytest.mark.parametrize("name", mostly_nightly(REFUSED, 5))
def test_a_function_that_uses_other_rows_is_refused(log: Log, name: str) -> None:
    function, said = REFUSED[name]
    PATH[:] = [log.warehouse.path_of("places")]
    with pytest.raises(DefinitionError, match=f"'per_minute': its function .*{said}.*row by row"):
        checked(log, function)


def test_an_aggregate_of_a_user_must_be_deterministic(log: Log) -> None:
    recent = agg.Aggregate(
        "recent()",
        partial=lambda: F.count_if(F.col("ts") > F.current_timestamp()),
        merge=F.sum,
        finish=lambda merged: merged,
    )
    said = r"^Asset 'per_minute': the aggregate 'late', recent\(\), calls current_timestamp\(\), "
    with pytest.raises(DefinitionError, match=said):
        windowing.check_analysis(log, replace(PER_MINUTE, aggregates={"late": recent}))


def test_concurrent_checks_leave_their_session_unchanged(log: Log) -> None:
    spark, setting = log.warehouse.spark, "spark.sql.debug.maxToStringFields"

    def check_one(number: int) -> str:
        name = "chance" if number % 2 else "many columns"
        function = REFUSED["chance"][0] if number % 2 else ALLOWED["many columns"]
        try:
            checked(log, function)
        except DefinitionError as error:
            return f"{name} refused" if "calls rand()" in str(error) else str(error)
        return f"{name} allowed"

    spark.conf.set(setting, "7")
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(check_one, range(8)))
        assert spark.conf.get(setting) == "7"
    finally:
        spark.conf.unset(setting)
    assert found == ["many columns allowed", "chance refused"] * 4
    assert not [t.name for t in spark.catalog.listTables() if t.name.startswith("tidemark_")]
