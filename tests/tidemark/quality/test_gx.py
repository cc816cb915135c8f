"""Great Expectations, asked by several threads of a process at once."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tidemark.define.expectations.general import General, adapted
from tidemark.quality import between, gx


def test_each_thread_judges_its_own_rows() -> None:
    expectation = between("n", most=0)
    assert isinstance(expectation, General)

    def judged(number: int) -> set[int]:
        own = range(100 * number, 100 * number + 50)
        rows = pd.DataFrame({gx.ROW: [*own], "n": [1] * len(own)})
        (finding,) = gx.judge(rows, [expectation])
        return {row for row, _ in finding.rows or []} ^ {*own}

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(judged, range(40))] == [set()] * 40


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_condition_and_a_share_hold_in_memory_and_in_the_engine(
    gxe: Any,  # noqa: ANN401
    spark: SparkSession,
    in_memory: bool,
) -> None:
    column = import_module("great_expectations.expectations.row_conditions").Column
    of_a = gxe.ExpectColumnValuesToBeBetween(
        column="n", max_value=1, row_condition=column("c") == "a"
    )
    some = gxe.ExpectColumnValuesToBeBetween(column="n", max_value=1, mostly=0.25)
    most = gxe.ExpectColumnValuesToBeBetween(column="n", max_value=1, mostly=0.5)
    frame = pd.DataFrame({gx.ROW: [0, 1, 2, 3], "n": [1, 5, 7, 9], "c": ["a", "a", "b", "b"]})
    rows = frame if in_memory else spark.createDataFrame(frame)
    found = gx.judge(rows, [adapted(each) for each in (of_a, some, most)])
    assert [(f.success, sorted(row for row, _ in f.rows or [])) for f in found] == [
        (False, [1]),
        (True, []),
        (False, [1, 2, 3]),
    ]
