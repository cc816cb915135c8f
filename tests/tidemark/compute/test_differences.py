"""Tests of the differences between two answers: rows with an identity, and rows without one."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from tidemark.compute.differences import cancel_rows, find_differences, pair_rows


def test_rows_are_paired_by_their_identity(spark: SparkSession) -> None:
    schema = "sensor STRING, part INT, value DOUBLE"
    left = spark.createDataFrame([("a", 1, 1.0), (None, 2, 2.0), ("b", 1, 3.0)], schema)
    right = spark.createDataFrame([("a", 1, 1.0), (None, 2, 5.0), ("b", 2, 3.0)], schema)
    paired = pair_rows(left, right, ["sensor", "part"])
    differences = find_differences({"value": DoubleType()}, "left", "right")
    rows = paired.select("key.*", F.transform(differences, lambda d: F.struct(d.left, d.right)))
    assert sorted(map(tuple, rows.collect()), key=repr) == [
        ("a", 1, []),
        ("b", 1, [("3.0", None)]),
        ("b", 2, [(None, "3.0")]),
        (None, 2, [("2.0", "5.0")]),
    ]


@pytest.mark.parametrize(
    ("signs", "net"),
    [([1, -1], []), ([1, 1, -1], [1]), ([-1, -1], [-2]), ([-1, 1, 1, 1], [2]), ([], [])],
)
def test_equal_rows_cancel(spark: SparkSession, signs: list[int], net: list[int]) -> None:
    rows = [(text, sign) for text in ("x", None) for sign in signs]
    signed = spark.createDataFrame(rows, "text STRING, sign INT")
    left = cancel_rows(signed, ["text"], "sign").orderBy(F.desc("text")).collect()
    assert [tuple(row) for row in left] == [
        (text, number) for text in ("x", None) for number in net
    ]
