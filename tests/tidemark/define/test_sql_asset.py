"""Test windowed assets in SQL: they are the definitions of the same assets in Python."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame

import tidemark as tm
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.row_function import is_generated

ORDERS = tm.Source(
    name="orders",
    columns={
        "at": "TIMESTAMP",
        "city": "STRING",
        "amount": "DOUBLE",
        "Item": "STRUCT<name: STRING, price: DOUBLE>",
        "tags": "ARRAY<STRING>",
        "order": "STRING",
    },
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
)
HOUR = "TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)"
TEXT = """\
SELECT window_start, window_end, city, COUNT(*) AS number, SUM(amount) AS revenue
FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)
WHERE amount > 0
GROUP BY window_start, window_end, city
"""


def keep_all(rows: DataFrame) -> DataFrame:
    return rows


def keep_paid(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 0")


def keep_tagged(rows: DataFrame) -> DataFrame:
    return rows.where("exists(tags, tag -> tag = 'new') AND NOT (city IS NULL)")


def keep_distant(rows: DataFrame) -> DataFrame:
    return rows.where("city IS DISTINCT FROM 'it''s' OR Item.price BETWEEN 1 AND 2")


def in_sql(sql: str, **options: Any) -> tm.WindowedTransform:  # noqa: ANN401 (of any type)
    return tm.sql_asset(name="orders_hourly", source=ORDERS, sql=sql, **options)


def in_python(
    function: Callable[[DataFrame], DataFrame] = keep_paid,
    window: tm.Window | None = None,
    aggregates: Mapping[str, tm.agg.Aggregate] | None = None,
    keys: tuple[str, ...] = ("city",),
    **options: Any,  # noqa: ANN401 (of any type)
) -> tm.WindowedTransform:
    if aggregates is None:
        aggregates = {"number": tm.agg.count(), "revenue": tm.agg.sum("amount")}
    define = tm.windowed_asset(
        source=ORDERS,
        window=window or tm.Tumbling("1 hour"),
        keys=keys,
        aggregates=aggregates,
        **options,
    )
    return define(function)


def refusal(sql: str) -> str:
    with pytest.raises(tm.DefinitionError) as refused:
        in_sql(sql)
    return str(refused.value)


def aggregated(call: str, source: str = HOUR) -> tm.WindowedTransform:
    """Return an asset with one aggregate and without keys."""
    return in_sql(
        f"SELECT window_start, window_end, {call} AS x FROM {source} GROUP BY "
        "window_start, window_end"
    )


def test_sql_and_python_give_the_same_definition() -> None:
    options: dict[str, Any] = {
        "allowed_lateness": "2 hours",
        "trigger": tm.Trigger(early=tm.Count(100)),
        "accumulation": "retracting",
        "deduplicate": tm.Deduplicate("order", within="1 day"),
        "expectations": [tm.expect.between("revenue", 0)],
    }
    sql = in_sql(TEXT, description="Orders.", **options)
    python = in_python(**options)
    assert compute_fingerprint(sql) == compute_fingerprint(python)
    assert compute_fingerprint(in_sql(TEXT)) == compute_fingerprint(in_python())
    assert compute_fingerprint(in_sql(TEXT)) != compute_fingerprint(in_python(keep_all))
    assert (sql.name, sql.description) == ("orders_hourly", "Orders.")
    assert (sql.window, sql.keys, sql.sink) == (python.window, python.keys, python.sink)
    assert sql.expectations == python.expectations


def test_a_definition_in_sql_keeps_its_fingerprint_in_other_processes() -> None:
    sql = in_sql(TEXT)
    sent = cloudpickle.loads(cloudpickle.dumps(sql))
    assert compute_fingerprint(sent) == compute_fingerprint(sql)
    assert is_generated(sent.function)


@pytest.mark.parametrize(
    ("windows", "window"),
    [
        ("TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)", tm.Tumbling("1 hour")),
        ("tumble(orders, at, '90 minutes')", tm.Tumbling("90 minutes")),
        (
            "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(`at`), INTERVAL '1' DAY, INTERVAL '6' HOUR))",
            tm.Tumbling("1 day", offset="6 hours"),
        ),
        (
            "TUMBLE(DATA => TABLE orders, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL 10 MINUTES,"
            " OFFSET => INTERVAL '-3' MINUTES)",
            tm.Tumbling("10 minutes", offset="-3 minutes"),
        ),
        (
            "HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
            tm.Sliding("10 minutes", "5 minutes"),
        ),
        (
            "HOP(TABLE orders, DESCRIPTOR(at), SIZE => INTERVAL '1' HOUR, SLIDE => '10 minutes',"
            " OFFSET => '1 minute')",
            tm.Sliding("1 hour", "10 minutes", offset="1 minute"),
        ),
        (
            "CUMULATE(TABLE orders, DESCRIPTOR(at), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)",
            tm.Cumulating("10 minutes", "2 minutes"),
        ),
        (
            "CUMULATE(TABLE orders, DESCRIPTOR(at), INTERVAL '1 hour', INTERVAL '1 day', '1 hour')",
            tm.Cumulating("1 day", "1 hour", offset="1 hour"),
        ),
        (
            "SESSION(TABLE orders PARTITION BY city, DESCRIPTOR(at), INTERVAL '30' MINUTES)",
            tm.Session("30 minutes"),
        ),
        (
            "SESSION(TABLE orders PARTITION BY (CITY), DESCRIPTOR(at), GAP => '1 second')",
            tm.Session("1 second"),
        ),
        ("CALENDAR(TABLE orders, DESCRIPTOR(at), 'day')", tm.Calendar("day")),
        (
            "TABLE(calendar(TABLE orders, DESCRIPTOR(at), 'week', 'America/New_York'))",
            tm.Calendar("week", "America/New_York"),
        ),
        (
            "CALENDAR(orders, at, TIMEZONE => 'Europe/Paris', UNIT => 'month')",
            tm.Calendar("month", "Europe/Paris"),
        ),
        ("GLOBAL(TABLE orders)", tm.Global()),
        ("GLOBAL(TABLE orders, DESCRIPTOR(at))", tm.Global()),
    ],
)
def test_each_table_function_is_a_window(windows: str, window: tm.Window) -> None:
    sql = in_sql(
        f"SELECT window_start, window_end, city, COUNT(*) AS number FROM {windows}\n"
        "GROUP BY window_start, window_end, city"
    )
    python = in_python(keep_all, window, {"number": tm.agg.count()})
    assert compute_fingerprint(sql) == compute_fingerprint(python)


@pytest.mark.parametrize(
    ("function", "window"),
    [
        ("window(at, '1 hour')", tm.Tumbling("1 hour")),
        ("WINDOW(at, INTERVAL '1' HOUR, '1 hour')", tm.Tumbling("1 hour")),
        ("window(at, '1 hour', '10 minutes')", tm.Sliding("1 hour", "10 minutes")),
        ("window(at, '1 hour', '60 minutes', '5 minutes')", tm.Tumbling("1 hour", "5 minutes")),
        (
            "window(at, '1 hour', '10 minutes', '5 minutes')",
            tm.Sliding("1 hour", "10 minutes", "5 minutes"),
        ),
        ("session_window(at, '30 minutes')", tm.Session("30 minutes")),
    ],
)
def test_each_function_of_spark_is_a_window(function: str, window: tm.Window) -> None:
    name = function.partition("(")[0]
    sql = in_sql(
        f"SELECT {name}.start, {name}.end AS window_end, city, COUNT(*) AS number FROM orders\n"
        f"GROUP BY {function}, city"
    )
    python = in_python(keep_all, window, {"number": tm.agg.count()})
    assert compute_fingerprint(sql) == compute_fingerprint(python)


@pytest.mark.parametrize(
    ("call", "aggregate"),
    [
        ("COUNT(*)", tm.agg.count()),
        ("COUNT(1)", tm.agg.count()),
        ("COUNT(*) FILTER (WHERE amount > 0)", tm.agg.count(where="amount > 0")),
        ("COUNT(amount)", tm.agg.count(where="amount IS NOT NULL")),
        ("COUNT(amount + 1)", tm.agg.count(where="(amount + 1) IS NOT NULL")),
        (
            "COUNT(city) FILTER (WHERE amount > 0 OR amount < -1)",
            tm.agg.count(where="(amount > 0 OR amount < -1) AND city IS NOT NULL"),
        ),
        ("COUNT(DISTINCT city)", tm.agg.count_distinct("city")),
        (
            "COUNT(DISTINCT city) FILTER (WHERE amount > 0)",
            tm.agg.count_distinct("city", "amount > 0"),
        ),
        ("COUNT_DISTINCT(city, max_values => 50)", tm.agg.count_distinct("city", max_values=50)),
        ("SUM(amount)", tm.agg.sum("amount")),
        ("SUM(Item.price * amount)", tm.agg.sum("Item.price * amount")),
        ("AVG(amount)", tm.agg.mean("amount")),
        ("MEAN(amount)", tm.agg.mean("amount")),
        ("MIN(amount)", tm.agg.min("amount")),
        ("MAX(at)", tm.agg.max("at")),
        ("STDDEV(amount)", tm.agg.stddev("amount")),
        ("STDDEV_SAMP(amount)", tm.agg.stddev("amount")),
        ("VARIANCE(amount)", tm.agg.variance("amount")),
        ("VAR_SAMP(amount)", tm.agg.variance("amount")),
        ("FIRST(city)", tm.agg.first("city")),
        ("FIRST_VALUE(city)", tm.agg.first("city")),
        ("ARG_MIN(city, at)", tm.agg.first("city")),
        ("LAST(city)", tm.agg.last("city")),
        ("LAST_VALUE(city) FILTER (WHERE amount > 0)", tm.agg.last("city", "amount > 0")),
        ("ARG_MAX(city, AT)", tm.agg.last("city")),
        ("APPROX_COUNT_DISTINCT(city)", tm.agg.approx_count_distinct("city")),
        ("QUANTILE(amount, 0.95)", tm.agg.quantile("amount", 0.95)),
        ("PERCENTILE_APPROX(amount, 1)", tm.agg.quantile("amount", 1)),
        (
            "APPROX_PERCENTILE(amount, 5e-1, exact_to => 100)",
            tm.agg.quantile("amount", 0.5, exact_to=100),
        ),
        ("TOP_K(city, 3)", tm.agg.top_k("city", 3)),
        ("TOP_K(city, k => 3, max_values => 9)", tm.agg.top_k("city", 3, max_values=9)),
        ("TOP_N(city, 3, amount)", tm.agg.top_n("city", 3, by="amount")),
        ("TOP_N(city, 3, by => -amount)", tm.agg.top_n("city", 3, by="-amount")),
        ("LAST_N(city, 3)", tm.agg.last_n("city", 3)),
        ("COLLECT(city)", tm.agg.collect("city")),
        ("COLLECT_LIST(city)", tm.agg.collect("city")),
        ("ARRAY_AGG(city)", tm.agg.collect("city")),
    ],
)
def test_each_aggregate_is_one_of_the_catalog(call: str, aggregate: tm.agg.Aggregate) -> None:
    python = in_python(keep_all, aggregates={"x": aggregate}, keys=())
    assert compute_fingerprint(aggregated(call)) == compute_fingerprint(python)


@pytest.mark.parametrize(
    "expression",
    [
        "coalesce(amount, 0)",
        "CASE WHEN city = 'york' THEN amount ELSE 0 END",
        "CAST(amount AS DECIMAL(10, 2))",
        "amount::int",
        "aggregate(tags, 0, (total, tag) -> total + length(tag), total -> total)",
        "size(filter(tags, tag -> tag LIKE 'a%' AND Item.name = tag))",
        "extract(hour FROM at)",
        "timestampdiff(HOUR, at, arrived_at)",
        "`order`",
        "tags[0]",
        "Item.price % 2",
        "if(amount BETWEEN 1 AND 2, amount, NULL)",
        "unix_micros(date_trunc('day', at) + INTERVAL 1 DAY)",
        "named_struct('price', Item.price).price",
    ],
)
def test_an_expression_is_as_it_is_written(expression: str) -> None:
    python = in_python(keep_all, aggregates={"x": tm.agg.min(expression)}, keys=())
    assert compute_fingerprint(aggregated(f"MIN({expression})")) == compute_fingerprint(python)


def test_case_comments_quotes_and_line_ends_do_not_count() -> None:
    text = (
        "-- Orders by hour: 'an apostrophe\r\n"
        "select WINDOW_START, Window_End, `city`, /* all of\r\n them */ count( * ) NUMBER,\r\n"
        "\tSum(\r\n  `amount` ) as `revenue`\r\n"
        "from table(Tumble(table ORDERS, descriptor(AT), interval '1' hour))\r\n"
        "where Amount   > -- zero\r\n 0\r\n"
        "group by window_end, CITY, window_start ; -- end\r\n"
    )
    assert compute_fingerprint(in_sql(text)) == compute_fingerprint(in_python())
    message = refusal(text.replace("Amount ", "Amont "))
    assert message.startswith("Asset 'orders_hourly', line 7, column 7 of its SQL: 'Amont' is not")


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "orders.sql"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    sql = tm.sql_asset(name="orders_hourly", source=ORDERS, sql=path)
    assert compute_fingerprint(sql) == compute_fingerprint(in_python())
    path.write_text(TEXT.replace("city", "town"))
    with pytest.raises(tm.DefinitionError) as refused:
        tm.sql_asset(name="orders_hourly", source=ORDERS, sql=path)
    assert str(refused.value) == (
        f"{path}:4:36: 'town' is not a column of source 'orders'; its columns are at, city, "
        "amount, Item, tags, order. To group by an expression, give it a name in SELECT: "
        "upper(city) AS region."
    )


def keep_regions(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 0").selectExpr("*", "upper(city) AS region")


@pytest.mark.parametrize(
    ("selected", "group"),
    [
        ("upper(city) AS region", "upper(city)"),
        ("upper(city) region", "UPPER( CITY )"),
        ("upper(city) AS region", "region"),
        ("upper(`city`) AS Region", "`region`"),
        ("upper(o.city) AS region", "upper(city)"),
        ("upper(city) AS region", "upper(o.`city`)"),
    ],
)
def test_a_key_may_be_an_expression(selected: str, group: str) -> None:
    group = group.replace("UPPER( CITY )", "upper( CITY )").replace("`city`", "city")
    selected = selected.replace("`city`", "city")
    text = TEXT.replace("city, COUNT", f"{selected}, COUNT").replace("end, city", f"end, {group}")
    sql = in_sql(text.replace("HOUR)", "HOUR) AS o"))
    python = in_python(keep_regions, keys=("region",))
    assert compute_fingerprint(sql) == compute_fingerprint(python)
    sessions = text.replace(HOUR, "orders o").replace("window_start, window_end, ", "")
    sessions = sessions.replace("BY ", "BY session_window(at, '1 hour'), ")
    in_gaps = in_python(keep_regions, tm.Session("1 hour"), keys=("region",))
    assert compute_fingerprint(in_sql(sessions)) == compute_fingerprint(in_gaps)


def keep_prices(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "Item.price AS price", "amount > 10 AS is_large")


def test_keys_may_be_expressions_next_to_columns() -> None:
    sql = in_sql(
        f"SELECT city, Item.price AS price, amount > 10 AS is_large, COUNT(*) AS x FROM {HOUR} "
        "GROUP BY Item.price, window_start, city, window_end, is_large"
    )
    python = in_python(
        keep_prices,
        aggregates={"x": tm.agg.count()},
        keys=("price", "city", "is_large"),
    )
    assert compute_fingerprint(sql) == compute_fingerprint(python)


@pytest.mark.parametrize(
    ("table", "prefix"),
    [
        (f"{HOUR} o", "o."),
        (f"{HOUR} AS `O`", "`o`."),
        (f"TABLE({HOUR}) AS o", "O ."),
        (HOUR, "orders."),
        (HOUR, "ORDERS. "),
    ],
)
def test_columns_may_have_the_name_of_the_table_in_front(table: str, prefix: str) -> None:
    text = (
        f"SELECT {prefix}window_start, {prefix}window_end, {prefix}city, COUNT(*) AS number, "
        f"SUM({prefix}amount*{prefix}Item.price-1) FILTER (WHERE {prefix}`order` = 'o.x') "
        f"AS revenue FROM {table} WHERE {prefix}amount > 0 "
        f"GROUP BY {prefix}window_start, {prefix}window_end, {prefix}city"
    )
    revenue = tm.agg.sum("amount*Item.price-1", "`order` = 'o.x'")
    python = in_python(aggregates={"number": tm.agg.count(), "revenue": revenue})
    assert compute_fingerprint(in_sql(text)) == compute_fingerprint(python)


def test_a_struct_with_the_name_of_the_source_keeps_its_fields() -> None:
    source = tm.Source(
        name="orders",
        columns="at TIMESTAMP, orders STRUCT<amount: DOUBLE>",
        event_time="at",
        watermark=tm.BoundedOutOfOrderness("10 minutes"),
    )
    text = f"SELECT SUM(orders.amount) AS x FROM {HOUR} GROUP BY window_start, window_end"
    sql = tm.sql_asset(name="x", source=source, sql=text)
    assert str(sql.aggregates["x"]) == str(tm.agg.sum("orders.amount"))


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "orders.sql"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(tm.DefinitionError, match=r"the file .*orders\.sql can't be read: "):
        tm.sql_asset(name="orders_hourly", source=ORDERS, sql=path)


REFUSALS = [
    (
        f"SELECT upper(city) AS region, COUNT(*) AS n FROM {HOUR}\n"
        "GROUP BY window_start, window_end",
        1,
        8,
        "A key that is an expression must be in GROUP BY, too.",
    ),
    (
        f"SELECT upper(city) AS item, COUNT(*) AS n FROM {HOUR}\n"
        "GROUP BY window_start, window_end, upper(city)",
        2,
        36,
        "the expression is named item, which is a column of source 'orders': give it another name",
    ),
    (
        "SELECT upper(city) AS region, COUNT(*) AS n\n"
        "FROM SESSION(TABLE orders PARTITION BY city, at, '1 hour')\n"
        "GROUP BY window_start, window_end, region",
        2,
        6,
        "PARTITION BY of SESSION can't name an expression: write FROM with the source alone, and",
    ),
    (
        "SELECT upper(city) AS events, COUNT(*) AS n FROM orders\n"
        "GROUP BY window(at, '1 hour'), events",
        2,
        32,
        "'events' is reserved: Tidemark adds a column of this name",
    ),
    (
        "SELECT COUNT(*) AS n FROM CALENDAR(TABLE orders, DESCRIPTOR(at))\n"
        "GROUP BY window_start, window_end",
        1,
        27,
        "CALENDAR needs the unit of its windows, as in 'month'.",
    ),
    (
        "SELECT COUNT(*) AS n FROM CALENDAR(orders, at, INTERVAL '1' MONTH)\n"
        "GROUP BY window_start, window_end",
        1,
        48,
        "must be a text in single quotes, as in 'month'.",
    ),
    (
        "SELECT COUNT(*) AS n FROM CALENDAR(orders, at, 'quarter')\n"
        "GROUP BY window_start, window_end",
        1,
        27,
        "The unit of a calendar window must be one of day, week, month, year (got 'quarter').",
    ),
    (
        "SELECT COUNT(*) AS n FROM CALENDAR(orders, at, 'day', 'Mars')\n"
        "GROUP BY window_start, window_end",
        1,
        27,
        "'Mars' is not a time zone: use a name of the IANA database",
    ),
    (
        "SELECT COUNT(*) AS n FROM GLOBAL(orders, at, '1 day')\nGROUP BY window_start, window_end",
        1,
        46,
        "''1 day'' is not an argument of GLOBAL; its arguments are data, timecol.",
    ),
    # What is not one SELECT.
    ("", 1, 1, "the text is empty: write a SELECT."),
    (" \n-- nothing\n", 1, 1, "the text is empty"),
    ("INSERT INTO x SELECT 1", 1, 1, "the text must begin with SELECT (got 'INSERT')"),
    ("WITH x AS (SELECT 1) SELECT 2", 1, 1, "without WITH, INSERT or CREATE"),
    (TEXT + "; SELECT 1", 5, 3, "a second statement can't be used"),
    ("SELECT 'abc", 1, 8, "' has no end: close it."),
    ("SELECT\n  `abc", 2, 3, "` has no end: close it."),
    ("SELECT /* abc", 1, 8, "/* has no end: close it."),
    ("SELECT COUNT(*", 1, 13, "'(' is not closed: add its end."),
    ("SELECT COUNT(*))", 1, 16, "')' closes nothing: remove it."),
    ("SELECT COUNT(*] FROM x", 1, 15, "']' closes nothing: remove it."),
    ("SELECT DISTINCT city", 1, 8, "DISTINCT can't be used"),
    ("SELECT 1", 1, 9, "the SELECT needs FROM with the windows"),
    (f"SELECT COUNT(*) AS n FROM {HOUR}", 1, 82, "the SELECT needs GROUP BY"),
]
CHANGES = [
    # A change of `TEXT`: the line and column of the mistake, and the message.
    ("city\n", "city HAVING number > 1\n", 4, 41, "HAVING can't be used. To filter windows, do"),
    ("city\n", "city ORDER BY city\n", 4, 41, "ORDER BY can't be used. To order windows, do it"),
    ("city\n", "city LIMIT 3\n", 4, 41, "LIMIT can't be used. To limit the rows, do it where"),
    ("city\n", "city UNION ALL SELECT 1\n", 4, 41, "UNION can't be used. To read several sources"),
    ("city\n", "city WHERE x > 1\n", 4, 41, "WHERE can't be used. Move it to its place before"),
    ("GROUP BY", "HAVING number > 1 GROUP BY", 4, 1, "HAVING can't be used."),
    ("BY window_start", "BY ROLLUP(city), window_start", 4, 10, "ROLLUP can't be used: define one"),
    ("BY window_start, window_end, city", "BY ALL", 4, 10, "ALL can't be used: define one asset"),
    ("HOUR)\n", "HOUR) JOIN towns\n", 2, 62, "a join can't be used: define the join with tm.join"),
    ("HOUR)\n", "HOUR) LEFT JOIN towns\n", 2, 62, "a join can't be used"),
    ("HOUR)\n", "HOUR), towns\n", 2, 61, "a join can't be used"),
    ("HOUR)\n", "HOUR) AS o(a)\n", 2, 62, "'AS o(a)' behind the table can't be used: remove it."),
    ("HOUR)\n", "HOUR) AS city\n", 2, 65, "the table can't be named city, which is also the name"),
    ("HOUR)\n", "HOUR) window\n", 2, 62, "the table can't be named window, which is also"),
    # The windows.
    ("TUMBLE(", "TUMBEL(", 2, 6, "'TUMBEL' is not a function of windows; allowed: TUMBLE, HOP,"),
    ("TABLE orders", "TABLE visits", 2, 19, "'visits' is not the source of this definition"),
    ("TABLE orders", "(SELECT * FROM orders)", 2, 13, "a subquery can't be used: name a source"),
    ("TUMBLE(TABLE orders", "TUMBLE((SELECT 1)", 2, 13, "a subquery can't be used"),
    (HOUR, "(SELECT 1)", 2, 6, "a subquery can't be used: name a source. To filter its events"),
    (
        HOUR,
        "orders",
        2,
        6,
        "the windows are missing: write FROM TUMBLE(TABLE orders, ",
    ),
    (HOUR, "", 3, 1, "the table is missing: write FROM TUMBLE("),
    (HOUR, "TUMBLE", 2, 6, "'TUMBLE' is not the source of this definition: write orders"),
    ("DESCRIPTOR(at)", "DESCRIPTOR(city)", 2, 38, "windows are by event time: write at, the event"),
    (", DESCRIPTOR(at), INTERVAL '1' HOUR", "", 2, 6, "TUMBLE needs the event time, as in"),
    (", INTERVAL '1' HOUR", "", 2, 6, "TUMBLE needs the size of its windows, as in INTERVAL"),
    ("'1' HOUR", "'1' MONTH", 2, 43, "Months and years vary in length"),
    ("'1' HOUR", "'0' HOUR", 2, 6, "The size of a tumbling window must be greater than zero"),
    ("'1' HOUR", "'1' HOUR TO MINUTE", 2, 43, "is not a duration: write a number and one"),
    ("INTERVAL '1' HOUR", "3600", 2, 43, "'3600' is not a duration"),
    ("'1' HOUR)", "'1' HOUR, '1 hour', '2 hours')", 2, 72, "''2 hours'' is not an argument of"),
    ("INTERVAL '1' HOUR", "GAP => '1 hour'", 2, 43, "is not an argument of TUMBLE; its arguments"),
    ("'1' HOUR)", "'1' HOUR, size => '1 hour')", 2, 62, "the argument size is given twice"),
    ("TABLE orders,", "TABLE orders PARTITION BY city,", 2, 6, "PARTITION BY is for SESSION only"),
    ("TUMBLE(", "SESSION(", 2, 6, "sessions are by key, so the SESSION needs PARTITION BY city"),
    (
        "TUMBLE(TABLE orders",
        "SESSION(TABLE orders PARTITION BY town",
        2,
        40,
        "'town' is not a column of source 'orders'",
    ),
    ("BY window_start", "BY window(at, '1 hour'), window_start", 4, 10, "an asset has one kind of"),
    # The condition.
    ("amount > 0", "amount >", 3, 14, "'amount >' is not an expression of Spark SQL: see '>'."),
    ("amount > 0", "amont > 0", 3, 7, "'amont' is not a column of source 'orders'; its columns"),
    ("amount > 0", "o.amount > 0", 3, 7, "'o' is not a column of source 'orders'; its columns"),
    (
        "HOUR)\nWHERE a",
        "HOUR) o\nWHERE orders.a",
        3,
        7,
        "write the column amount without 'orders.'",
    ),
    ("amount > 0", "window_start > at", 3, 7, "'window_start' is not a column of source"),
    ("amount > 0", "amount > (SELECT 1)", 3, 17, "a subquery can't be used: an asset reads one"),
    ("amount > 0", "city IN (SELECT c FROM x)", 3, 16, "a subquery can't be used"),
    ("amount > 0", "amount > max(amount)", 3, 16, "the aggregate max can't be used within an"),
    ("amount > 0", "amount > sum(amount) OVER ()", 3, 28, "OVER can't be used"),
    (
        "amount > 0",
        "amount > rand()",
        3,
        7,
        "'amount > rand()' calls rand(), which returns",
    ),
    ("amount > 0", 'city = "york"', 3, 14, '"york" is a text in Spark and a column in other'),
    ("amount > 0", "amount 0", 3, 14, "'amount 0' is not an expression of Spark SQL: see '0'."),
    ("amount > 0", "", 4, 1, "an expression is missing"),
    # The keys.
    ("BY window_start, ", "BY ", 4, 10, "GROUP BY needs window_start: write GROUP BY window_start"),
    ("BY window_start, window_end", "BY window_start", 4, 10, "GROUP BY needs window_end"),
    ("end, city\n", "end, town\n", 4, 36, "'town' is not a column of source 'orders'"),
    ("end, city\n", "end, upper(city)\n", 4, 36, "write upper(city) AS name."),
    ("end, city\n", "end, region\n", 4, 36, "To group by an expression, give it a name in SELECT:"),
    ("end, city\n", "end, sum(amount)\n", 4, 36, "the aggregate sum can't be used within an expr"),
    ("end, city\n", "end, upper(town)\n", 4, 42, "'town' is not a column of source 'orders'"),
    ("end, city\n", "end, rand()\n", 4, 36, "calls rand(), which returns"),
    ("end, city\n", "end, 1\n", 4, 36, "'1' is not a column of source 'orders'"),
    ("end, city\n", "end, city, City\n", 4, 42, "the key 'city' is given twice: remove one."),
    ("end, city\n", "end, city, amount\n", 4, 42, "the key amount is not in SELECT: add it, or"),
    ("end, city\n", "end, city, Item\n", 4, 42, "'Item' is not a valid name for a result column"),
    ("end, city\n", "end\n", 1, 34, "'city' is neither a key nor aggregated: add it to GROUP BY"),
    # The result columns.
    ("SELECT window_start", "SELECT *", 1, 8, "* can't be used: name the window's bounds, keys"),
    ("SELECT ", "SELECT , ", 1, 8, "a column is missing: remove the comma, or write a column."),
    ("SELECT window_start", "SELECT window.start", 1, 8, "'window.start' can't be used"),
    ("SELECT window_start", "SELECT window_time", 1, 8, "'window_time' can't be used: the bounds"),
    (
        "SELECT window_start",
        "SELECT window_start AS w",
        1,
        24,
        "the column is named window_start",
    ),
    (", city, COUNT", ", city AS town, COUNT", 1, 42, "the column is named city in the table"),
    (", city, COUNT", ", city, city, COUNT", 1, 40, "the column city is given twice: remove one"),
    (", city, COUNT", ", town, COUNT", 1, 34, "'town' is not a column of source 'orders'"),
    (" AS revenue", "", 1, 60, "'SUM(amount)' needs a name: write SUM(amount) AS name."),
    ("AS revenue", "AS number", 1, 75, "the column number is given twice"),
    ("AS revenue", "AS city", 1, 75, "the column city is given twice"),
    ("AS revenue", "AS `Re venue`", 1, 75, "'Re venue' is not a valid name for a result column"),
    ("AS revenue", "AS events", 1, 75, "'events' is reserved: Tidemark adds a column of this name"),
    ("AS revenue", "AS", 1, 74, "a name must follow AS (got nothing)."),
    ("AS revenue", "AS 'revenue'", 1, 75, "a name must follow AS"),
    (
        "city, COUNT(*) AS number, SUM(amount) AS revenue",
        "city",
        1,
        34,
        "an asset needs at least one aggregate",
    ),
    # The aggregates.
    ("SUM(amount)", "MEDIAN(amount)", 1, 60, "'MEDIAN' is not an aggregate of Tidemark: write QUA"),
    ("SUM(amount)", "UPPER(city)", 1, 60, "'UPPER' is not an aggregate of Tidemark; allowed: cou"),
    ("SUM(amount)", "SUM(amount) / 2", 1, 72, "'/ 2' behind an aggregate can't be used: give the"),
    ("SUM(amount)", "2 * SUM(amount)", 1, 60, "'2 * SUM(amount)' is not an aggregate, a key or a"),
    ("SUM(amount)", "SUM(amount) OVER ()", 1, 72, "OVER can't be used"),
    ("SUM(amount)", "SUM(amount) WITHIN GROUP (ORDER BY at)", 1, 72, "WITHIN GROUP can't be used"),
    ("SUM(amount)", "SUM(DISTINCT amount)", 1, 64, "DISTINCT can't be used in SUM, only in COUNT"),
    ("SUM(amount)", "SUM(MAX(amount))", 1, 64, "the aggregate MAX can't be used within an"),
    ("SUM(amount)", "SUM()", 1, 64, "SUM needs the argument column; its arguments are column."),
    ("SUM(amount)", "SUM(amount, 1)", 1, 72, "'1' is not an argument of SUM; its arguments are"),
    ("SUM(amount)", "SUM(amount, where => x)", 1, 72, "'where => x' is not an argument of SUM"),
    ("SUM(amount)", "COUNT(city, at)", 1, 72, "COUNT takes one expression: write COUNT(DISTINCT"),
    ("SUM(amount)", "COUNT(DISTINCT city, at)", 1, 81, "COUNT takes one expression"),
    ("SUM(amount)", "COUNT()", 1, 66, "an expression is missing"),
    ("SUM(amount)", "TOP_K(city)", 1, 66, "TOP_K needs the argument k; its arguments are column"),
    (
        "SUM(amount)",
        "TOP_K(city, amount)",
        1,
        72,
        "the argument k must be a number (got ",
    ),
    ("SUM(amount)", "TOP_K(city, 0)", 1, 60, "The 'k' of top_k must be a whole number from 1 to"),
    ("SUM(amount)", "QUANTILE(amount, 2)", 1, 60, "quantile: q must be a number from 0 to 1"),
    ("SUM(amount)", "ARG_MAX(city, amount)", 1, 60, "ARG_MAX needs a value and the event time"),
    ("SUM(amount)", "SUM(amount) FILTER amount", 1, 79, "FILTER needs a condition, as in FILTER"),
    ("SUM(amount)", "SUM(amount) FILTER (amount)", 1, 80, "FILTER needs WHERE, as in FILTER"),
    ("SUM(amount)", "SUM(amount) FILTER (WHERE amont)", 1, 86, "'amont' is not a column"),
    ("SUM(amount)", "SUM(amount) FILTER (WHERE rand() > 1)", 1, 86, "calls rand(), which returns"),
    ("SUM(amount)", "SUM(amount,)", 1, 71, "an argument is missing: write one"),
]


@pytest.mark.parametrize(("sql", "line", "column", "message"), REFUSALS)
def test_a_refused_text_is_named_with_its_place(
    sql: str, line: int, column: int, message: str
) -> None:
    refused = refusal(sql)
    place = f"Asset 'orders_hourly', line {line}, column {column} of its SQL: "
    assert refused.startswith(place)
    assert message in refused


@pytest.mark.parametrize(("before", "after", "line", "column", "message"), CHANGES)
def test_a_mistake_is_named_with_its_place(
    before: str, after: str, line: int, column: int, message: str
) -> None:
    assert before in TEXT
    refused = refusal(TEXT.replace(before, after, 1))
    place = f"Asset 'orders_hourly', line {line}, column {column} of its SQL: "
    assert refused.startswith(place)
    assert message in refused


CONDITIONS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "": keep_all,
    "amount > 0": keep_paid,
    "exists(tags, tag -> tag = 'new') AND NOT (city IS NULL)": keep_tagged,
    "city IS DISTINCT FROM 'it''s' OR Item.price BETWEEN 1 AND 2": keep_distant,
}
UNITS = ("SECOND", "MINUTES", "hour", "Days")
EXPRESSIONS = ("amount", "amount * 2 - 1", "coalesce(Item.price, 0)", "length(city)")
FILTERS = (None, "amount > 0", "city IN ('a', 'b, c') OR amount IS NULL", "`order` <=> city")


def interval(number: int, unit: str, style: int) -> str:
    return (f"INTERVAL '{number}' {unit}", f"INTERVAL {number} {unit}", f"'{number} {unit}'")[style]


@st.composite
def windows(draw: st.DrawFn, keys: tuple[str, ...]) -> tuple[str, str, tm.Window]:
    """Draw windows: the text behind `FROM`, the text of `GROUP BY`, and the window."""
    unit = draw(st.sampled_from(UNITS))
    style = draw(st.integers(0, 2))
    step = draw(st.integers(1, 20))
    factor = draw(st.integers(1, 20))
    offset = draw(st.none() | st.integers(0, 100))
    small = interval(step, unit, style)
    large = interval(step * factor, unit, style)
    shift = "" if offset is None else f", {interval(offset, unit, style)}"
    size = f"{step * factor} {unit}"
    more = {} if offset is None else {"offset": f"{offset} {unit}"}
    begin = draw(st.sampled_from(["TABLE orders, DESCRIPTOR(at)", "orders, at"]))
    bounds = "window_start, window_end"
    kind = draw(st.sampled_from(["tumble", "hop", "cumulate", "session", "window", "sliding"]))
    match kind:
        case "tumble":
            return f"TUMBLE({begin}, {large}{shift})", bounds, tm.Tumbling(size, **more)
        case "hop":
            window = tm.Sliding(size, f"{step} {unit}", **more)
            return f"hop({begin}, {small}, {large}{shift})", bounds, window
        case "cumulate":
            window = tm.Cumulating(size, f"{step} {unit}", **more)
            return f"CUMULATE({begin}, {small}, {large}{shift})", bounds, window
        case "session":
            by = f" PARTITION BY ({', '.join(keys)})" if keys else ""
            call = f"SESSION(TABLE orders{by}, DESCRIPTOR(at), {large})"
            return f"TABLE({call})", bounds, tm.Session(size)
        case "window":
            return "orders", f"window(at, {large})", tm.Tumbling(size)
        case _:
            group = f"window(at, {large}, {small}{shift})"
            if factor == 1:
                return "orders", group, tm.Tumbling(size, **more)
            return "orders", group, tm.Sliding(size, f"{step} {unit}", **more)


@st.composite
def aggregates(draw: st.DrawFn) -> tuple[str, tm.agg.Aggregate]:
    value = draw(st.sampled_from(EXPRESSIONS))
    where = draw(st.sampled_from(FILTERS))
    n = draw(st.integers(1, 99))
    call, aggregate = draw(
        st.sampled_from(
            [
                ("COUNT(*)", tm.agg.count(where)),
                (f"count(DISTINCT {value})", tm.agg.count_distinct(value, where)),
                (f"Sum({value})", tm.agg.sum(value, where)),
                (f"AVG({value})", tm.agg.mean(value, where)),
                (f"MIN( {value} )", tm.agg.min(value, where)),
                (f"MAX({value})", tm.agg.max(value, where)),
                (f"STDDEV({value})", tm.agg.stddev(value, where)),
                (f"LAST({value})", tm.agg.last(value, where)),
                (f"quantile({value}, {n / 100})", tm.agg.quantile(value, n / 100, where)),
                (f"TOP_N({value}, {n}, by => at)", tm.agg.top_n(value, n, "at", where)),
                (
                    f"COLLECT({value}, max_values => {n})",
                    tm.agg.collect(value, where, max_values=n),
                ),
            ]
        )
    )
    condition = "" if where is None else f" FILTER (WHERE {where})"
    return call + condition, aggregate


@given(st.data())
def test_a_drawn_definition_is_the_same_in_sql(data: st.DataObject) -> None:
    keys = tuple(data.draw(st.lists(st.sampled_from(["city", "order"]), unique=True)))
    quoted = tuple(f"`{key}`" for key in keys)
    table, groups, window = data.draw(windows(quoted))
    condition = data.draw(st.sampled_from(list(CONDITIONS)))
    drawn = data.draw(st.lists(aggregates(), min_size=1, max_size=4))
    named = {f"value_{number}": aggregate for number, (_, aggregate) in enumerate(drawn)}
    columns = [f"{call} AS value_{number}" for number, (call, _) in enumerate(drawn)]
    space = data.draw(st.sampled_from([" ", "\n", "\r\n  ", " /* a, b */ ", " -- c)\n"]))
    sql = space.join(
        [
            "SELECT",
            f",{space}".join([*quoted, *columns]),
            f"FROM {table}",
            f"WHERE {condition}" if condition else "",
            f"GROUP BY{space}{', '.join([groups, *quoted])}",
        ]
    )
    python = in_python(CONDITIONS[condition], window, named, keys)
    assert compute_fingerprint(in_sql(sql)) == compute_fingerprint(python), sql
