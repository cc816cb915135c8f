"""Tests that definitions refuse SQL expressions whose result does not depend on the row alone."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import NONDETERMINISTIC_FUNCTIONS, Sql, find_nondeterminism
from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.join import Between, join
from tidemark.define.watermarks import Punctuated
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.kafka import KafkaConnector, KafkaSink

# Each line is an expression that Spark computes anew, and a part of the reason for its refusal.
REFUSED = {
    "rand() < 0.5": "calls rand()",
    "RAND ( 42 ) < 0.5": "calls rand()",
    "rand/* one comment */ -- and another\n () < 0.5": "calls rand()",
    "`rand`() < 0.5": "calls rand()",
    "system.builtin.rand() < 0.5": "calls rand()",
    "IDENTIFIER('rand')() < 0.5": "calls identifier()",
    "at < now() - INTERVAL 1 DAY": "calls now()",
    "at < current_timestamp": "calls current_timestamp()",
    "at < Current_Timestamp()": "calls current_timestamp()",
    "CASE WHEN city = 'it''s now()' THEN current_date END = day": "calls current_date()",
    "l.at < current_timestamp AND r.at > l.at": "calls current_timestamp()",
    "at < TIMESTAMP 'now'": "has the value TIMESTAMP 'now'",
    "day = date ' Today UTC'": "has the value date ' Today UTC'",
    "unix_timestamp() > 5": "calls unix_timestamp()",
    "exists(tags, tag -> tag = uuid())": "calls uuid()",
    "reflect('java.util.UUID', 'randomUUID') = id": "calls reflect()",
    "id IN (SELECT id FROM banned)": "contains a query",
    "id = (TABLE newest)": "contains a query",
    r"city = 'a\'' AND rand() < 0.5 AND city = '\'b'": "calls rand()",
    r"city = r'a\' AND rand() < 0.5 AND city = r'b\'": "calls rand()",
    "shuffle(tags)[0] = 'a'": "calls shuffle()",
    "current_user = owner": "calls current_user()",
}
ALLOWED = [
    "op = 'D'",
    "note = 'call now() or rand()'",
    "note = \"TIMESTAMP 'now', (SELECT 1)\"",
    "now < at AND rand > 3 AND uuid IS NULL AND user = 'ada'",
    "l.current_date < r.current_date",
    "`current_timestamp` > at",
    "operand(3) = 1",
    "at > TIMESTAMP '2026-01-01' AND at < date'2026-01-02'",
    "to_timestamp('now') IS NULL",
    "unix_timestamp(at) > 5",
    "-- rand()\n at IS NOT NULL /* now() */",
    "extract(year FROM at) = 2026 AND (select + 1) > 0 AND (table) IS NULL",
    "struct(at AS current_date, city)",
    "x % 2 = 0 AND f(x -> x + 1) <=> 'ä' AND \N{GREEK SMALL LETTER ALPHA} = 1.5e3",
]
OTHERS = replace(READINGS, name="others")
RENAMED = {f"others.{name}": f"other_{name}" for name in ("ts", "value", "price")}
HAS_SQL: Mapping[str, Callable[[str], object]] = {
    "join: where": lambda sql: join(
        name="pairs",
        left=READINGS,
        right=OTHERS,
        on=["sensor"],
        within=Between("0 seconds", "1 hour"),
        rename=RENAMED,
        where=sql,
    ),
    "asof_join: deleted": lambda sql: asof_join(
        name="priced",
        left=READINGS,
        right=OTHERS,
        on=["sensor"],
        rename=RENAMED,
        deleted=sql,
    ),
    "Punctuated: expression": Punctuated,
    "count: where": lambda sql: agg.count(where=sql),
    "top_n: by": lambda sql: agg.top_n("value", 3, by=sql),
    "Lane: valid": lambda sql: Lane(
        name="checked",
        connector=KafkaConnector(READINGS, ["readings"], servers="127.0.0.1:1"),
        prepare=PER_MINUTE.function,
        to=KafkaSink("out", servers="127.0.0.1:1"),
        valid=["value > 0", sql],
    ),
    **{
        f"{function.__name__}: column": lambda sql, function=function: function(sql)
        for function in (agg.sum, agg.min, agg.max, agg.mean, agg.variance, agg.stddev)
    },
    **{
        f"{function.__name__}: where": lambda sql, function=function: function("x", where=sql)
        for function in (agg.first, agg.last, agg.approx_count_distinct, agg.count_distinct)
    },
}


@pytest.mark.parametrize("sql", REFUSED)
def test_an_expression_that_depends_on_more_than_the_row_is_found(sql: str) -> None:
    assert (find_nondeterminism(sql) or "").startswith(REFUSED[sql])


@pytest.mark.parametrize("sql", ALLOWED)
def test_an_expression_over_columns_is_accepted(sql: str) -> None:
    assert find_nondeterminism(sql) is None


@pytest.mark.parametrize("function", ["current_date", "current_time", "current_user"])
def test_a_column_may_have_the_name_of_a_function_without_parentheses(function: str) -> None:
    assert find_nondeterminism(f"max({function})") is not None
    assert find_nondeterminism(f"max({function})", ["value"]) is not None
    assert find_nondeterminism(f"max({function})", ["value", function.upper()]) is None
    assert find_nondeterminism(f"max({function}())", ["value", function]) is not None


@pytest.mark.parametrize("argument", HAS_SQL)
def test_each_argument_with_sql_refuses_a_nondeterministic_expression(argument: str) -> None:
    HAS_SQL[argument]("value > 0")
    said = rf"^{argument} calls rand\(\), which returns another value each time .*columns\.$"
    with pytest.raises(DefinitionError, match=said):
        HAS_SQL[argument]("value > rand()")


def test_expressions_in_lists_and_mappings_are_checked() -> None:
    @check_arguments
    def compute(columns: Mapping[str, Sql], conditions: Sequence[Sql] | None = None) -> int:
        return len(columns) + len(conditions or ())

    assert compute({"rand()": "value"}, ["value > 0"]) == 2
    with pytest.raises(DefinitionError, match=r"^compute: columns calls rand\(\)"):
        compute({"day": "rand()"})
    with pytest.raises(DefinitionError, match=r"^compute: conditions calls now\(\)"):
        compute({}, ["value > 0", "now() > at"])


@given(
    function=st.sampled_from(sorted(NONDETERMINISTIC_FUNCTIONS)),
    before=st.lists(st.sampled_from(["'it''s'", "`a``b`", "x", "3.5", "(", "/* ' */", "r'\\'"])),
    after=st.lists(st.sampled_from(["'now()'", "`c`", ")", "+", "-- '\n", '"d"'])),
)
def test_a_call_is_found_between_any_tokens(
    function: str, before: list[str], after: list[str]
) -> None:
    around = f"{' '.join(before)} %s {' '.join(after)}"
    assert find_nondeterminism(around % f"{function}(1)") is not None
    assert find_nondeterminism(around % "f(1)") is None


@pytest.mark.slow
@pytest.mark.nightly
def test_each_nondeterministic_function_of_spark_is_known(spark: SparkSession) -> None:
    """Spark's documentation notes which functions are not deterministic."""
    by_order = re.compile(r"\.expressions\.aggregate\.")
    unknown = list[str]()
    for (name,) in spark.sql("SHOW FUNCTIONS").collect():
        rows = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        text = "\n".join(row[0] for row in rows)
        changes = re.search(r"non-?deterministic", text, re.IGNORECASE)
        if changes and not by_order.search(text) and find_nondeterminism(f"{name}(x)") is None:
            unknown.append(name)
    assert unknown == []
