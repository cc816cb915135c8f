"""Tests of errors in a user's functions and aggregates, as a real engine reports them.

Each error is one message that names the asset and the line.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE, READINGS, T0, Event, ingest, same
from tidemark.base.errors import TidemarkError
from tidemark.define import aggregates as agg
from tidemark.define.aggregates import Aggregate
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse

HERE = Path(__file__).name
PYTHON = rf"a Python function failed at \S*{HERE}, line \d+: ValueError: no such price\."
TEXT = (
    r"the aggregate 'x', {}\(sensor\), needs numbers, but its values have the type STRING: convert"
)


def refuse(*_: Any) -> Any:  # noqa: ANN401 (any value)
    raise ValueError("no such price")


def by_udf(rows: DataFrame) -> DataFrame:
    udf: Any = F.udf(refuse, "double")
    return rows.withColumn("value", udf("value"))


def own(**parts: Callable[..., Any]) -> Aggregate:
    usual: dict[str, Any] = {"partial": len, "merge": sum, "finish": abs, **parts}
    return agg.python("own", "value", **usual, partial_type="int", result_type="int")


@pytest.fixture(scope="module")
def readings(shared: Warehouse) -> Warehouse:
    ingest(shared, READINGS, [[Event(T0, "a", 1), Event(T0 + 1, "b", 2)]])
    return shared


@pytest.mark.parametrize(
    ("name", "aggregate", "function", "sentence"),
    [
        ("prepares", agg.max("value"), by_udf, PYTHON),
        ("partial", own(partial=refuse), same, PYTHON),
        ("merge", own(merge=refuse), same, PYTHON),
        ("finish", own(finish=refuse), same, PYTHON),
        ("sums", agg.sum("sensor"), same, TEXT.format("sum")),
        ("means", agg.mean("sensor"), same, TEXT.format("mean")),
    ],
)
def test_a_user_error_is_one_message_that_names_the_asset(
    readings: Warehouse,
    name: str,
    aggregate: Aggregate,
    function: Callable[[DataFrame], DataFrame],
    sentence: str,
) -> None:
    asset = replace(PER_MINUTE, name=name, aggregates={"x": aggregate}, function=function)
    with pytest.raises(TidemarkError) as refused:
        incremental(readings, asset)
    assert re.match(rf"Asset '{name}': {sentence}", str(refused.value)), str(refused.value)
    assert "\n" not in str(refused.value)
