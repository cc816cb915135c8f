"""Tests of literals that differ between runs: the results and the generated code stay the same."""

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemark.engine.queries.plan_literals import uncompiled_literal, uncompiled_literal_sql
from tidemark.engine.queries.planning import CHANGED_SETTINGS, share_compiled_code
from tidemark.engine.queries.requests import override_settings, read_settings

_CODEGEN = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "false",
}


def plain(value: int) -> Column:
    return F.lit(value).cast("bigint")


def code(spark: SparkSession, number: Callable[[int], Column], value: int) -> str:
    """Return the code that the engine generates for a query that uses a number several times."""
    rows = spark.range(100).where(F.col("id") > number(value))
    told = F.when(F.max("id") <= number(value + 50), number(value)).otherwise(number(value + 1))
    found = StringIO()
    with redirect_stdout(found):
        rows.groupBy((F.col("id") % 3).alias("k")).agg(told.alias("v")).explain(mode="codegen")
    lines = [line for line in found.getvalue().splitlines() if line.startswith("/*")]
    assert len(lines) > 100
    return re.sub(r"#\d+L?", "", "\n".join(lines))


@pytest.mark.parametrize(("number", "same"), [(uncompiled_literal, True), (plain, False)])
def test_only_uncompiled_literals_share_generated_code(
    spark: SparkSession, number: Callable[[int], Column], same: bool
) -> None:
    own = read_settings(spark, [*_CODEGEN, *CHANGED_SETTINGS])
    with override_settings(spark, own, {**own, **_CODEGEN, **share_compiled_code(own)}):
        one, other = (code(spark, number, value) for value in (1_700_000_000, 1_800_000_000))
    assert (one == other) == same


@pytest.mark.parametrize("value", [-(1 << 62), -1, 0, 1 << 62, None])
def test_an_uncompiled_literal_is_a_bigint(spark: SparkSession, value: int | None) -> None:
    found = spark.range(1).select(uncompiled_literal(value).alias("v"))
    assert found.dtypes == [("v", "bigint")]
    assert found.collect() == [(value,)]
    if value is not None:
        assert spark.sql(f"SELECT {uncompiled_literal_sql(value)}").collect() == [(value,)]


def test_rules_that_an_engine_already_excludes_stay_excluded() -> None:
    (excluded, other) = CHANGED_SETTINGS
    told = share_compiled_code({excluded: "a.Rule, b.Rule", other: None})
    assert (told[excluded] or "").startswith("a.Rule,b.Rule,")
    assert share_compiled_code(told) == told
