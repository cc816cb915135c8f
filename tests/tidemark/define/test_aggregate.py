"""Tests of aggregates: the partials of any split of the events merge into the correct result."""

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.aggregates import Aggregate
from tidemark.define.helper_columns import HAPPENED_AT
from tidemark.engine.queries.planning import Planner, Planning
from tidemark.store.warehouse import Warehouse

SCHEMA = "at BIGINT, arrival BIGINT, position BIGINT, i INT, d DECIMAL(10,2), x DOUBLE, s STRING"


@dataclass(frozen=True)
class Event:
    """Event as `partial` reads it, with a value of each type or null."""

    at: int
    arrival: int
    position: int
    i: int | None
    d: Decimal | None
    x: float | None
    s: str | None


def some_events(seed: int = 3, count: int = 120) -> list[Event]:
    """Return events out of order, some at the same instant, a sixth of them without values."""
    chance = random.Random(seed)

    def event(number: int) -> Event:
        at = chance.randrange(-20, 40)
        if chance.random() < 1 / 6:
            return Event(at, number // 7, number % 7, None, None, None, None)
        i = chance.randrange(-9, 30)
        d = Decimal(chance.randrange(-10_000, 10_000_000)) / 100
        return Event(at, number // 7, number % 7, i, d, chance.gauss(1e6, 3), chance.choice("abcd"))

    return [event(number) for number in range(count)]


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    rows = [(e.at, e.arrival, e.position, e.i, e.d, e.x, e.s) for e in events]
    return spark.createDataFrame(rows, SCHEMA).withColumn(HAPPENED_AT, F.timestamp_micros("at"))


def spread(**only: str) -> Aggregate:
    """Return an aggregate in Python: the greatest value minus the least."""

    def partial(values: list[Any]) -> tuple[Any, Any]:
        return (values[0], values[-1]) if values else (None, None)

    def merge(parts: list[Any]) -> tuple[Any, Any]:
        known = [p for p in parts if p.low is not None]
        return partial(sorted([*(p.low for p in known), *(p.high for p in known)]))

    return agg.python(
        "spread",
        "d",
        partial=partial,
        merge=merge,
        finish=lambda p: None if p.low is None else p.high - p.low,
        partial_type="struct<low: decimal(10,2), high: decimal(10,2)>",
        result_type="decimal(11,2)",
        **only,
    )


def distinct(events: list[Event]) -> int:
    return len({e.s for e in events if e.s is not None})


def known(name: str, events: list[Event]) -> list[Any]:
    return [v for e in events if (v := getattr(e, name)) is not None]


def or_none(function: Callable[[list[Any]], Any], least: int = 1) -> Callable[[list[Any]], Any]:
    return lambda values: function(values) if len(values) >= least else None


def ordered(events: list[Event]) -> list[str]:
    with_value = [e for e in events if e.s is not None]
    return known("s", sorted(with_value, key=lambda e: (e.at, e.arrival, e.position)))


def greatest(events: list[Event], n: int) -> list[tuple[str, float]]:
    """Return the letters and numbers of the events with the greatest numbers."""
    given = [e for e in events if e.i is not None]
    best = sorted(given, key=lambda e: (-(e.i or 0), e.arrival, e.position))
    return [(e.s or "", e.i or 0) for e in best[:n]]


def most_frequent(values: list[Any], k: int) -> list[tuple[Any, int]]:
    return sorted(Counter(values).items(), key=lambda entry: (-entry[1], entry[0]))[:k]


def at_share(values: list[float], numerator: int, denominator: int) -> float:
    """Return the value at the given share of the sorted values, with its rank rounded up."""
    rank = -(-len(values) * numerator // denominator)
    return sorted(values)[max(rank, 1) - 1]


Answer = Callable[[list[Event]], Any]
CASES: list[tuple[Aggregate, Answer]] = [
    (agg.count(), len),
    (agg.count(where="i > 4"), lambda es: sum(v > 4 for v in known("i", es))),
    (agg.sum("i"), lambda es: or_none(sum)(known("i", es))),
    (agg.sum("d"), lambda es: or_none(sum)(known("d", es))),
    (agg.sum("x"), lambda es: or_none(sum)(known("x", es))),
    (agg.sum("i", where="i > 100"), lambda _: None),
    (agg.min("d"), lambda es: or_none(min)(known("d", es))),
    (agg.max("i * 2"), lambda es: or_none(lambda v: max(v) * 2)(known("i", es))),
    (agg.min("s", where="i < 0"), lambda es: or_none(min)(known("s", below_zero(es)))),
    (agg.mean("i"), lambda es: or_none(statistics.fmean)(known("i", es))),
    (agg.mean("x"), lambda es: or_none(statistics.fmean)(known("x", es))),
    (agg.mean("x", where="i > 100"), lambda _: None),
    (agg.variance("x"), lambda es: or_none(statistics.variance, 2)(known("x", es))),
    (agg.variance("d"), lambda es: or_none(statistics.variance, 2)([*map(float, known("d", es))])),
    (agg.stddev("i"), lambda es: or_none(statistics.stdev, 2)(known("i", es))),
    (agg.stddev("i", where="i < 0"), lambda es: statistics.stdev(known("i", below_zero(es)))),
    (agg.first("s"), lambda es: or_none(lambda v: v[0])(ordered(es))),
    (agg.last("s"), lambda es: or_none(lambda v: v[-1])(ordered(es))),
    (agg.first("s", where="i < 0"), lambda es: ordered(below_zero(es))[0]),
    (agg.last("struct(s)", where="i < 0"), lambda es: ((ordered(below_zero(es))[-1]),)),
    (agg.approx_count_distinct("s"), distinct),
    (agg.approx_count_distinct("d"), lambda es: len({*known("d", es)})),
    (agg.approx_count_distinct("s", where="i > 100"), lambda _: 0),
    (agg.count_distinct("s"), distinct),
    (agg.count_distinct("d", where="i < 0"), lambda es: len({*known("d", below_zero(es))})),
    (agg.count_distinct("s", max_values=4), distinct),
    (agg.count_distinct("s", max_values=3), lambda es: None),
    (agg.quantile("x", 0), lambda es: or_none(min)(known("x", es))),
    (agg.quantile("d", 0.5), lambda es: float(at_share(known("d", es), 1, 2))),
    (
        agg.quantile("i", 0.95, where="i < 0"),
        lambda es: at_share(known("i", below_zero(es)), 19, 20),
    ),
    (agg.quantile("i", 1.0), lambda es: or_none(max)(known("i", es))),
    (agg.top_k("s", 2), lambda es: most_frequent(known("s", es), 2)),
    (agg.top_k("d", 3, where="i < 0"), lambda es: most_frequent(known("d", below_zero(es)), 3)),
    (agg.top_k("i", 9, max_values=39), lambda es: most_frequent(known("i", es), 9)),
    (agg.top_k("s", 3, max_values=3), lambda _: None),
    (agg.top_n("struct(s, i)", 30, by="i"), lambda es: greatest(es, 30)),
    (agg.top_n("x", 3, where="i < 0"), lambda es: sorted(known("x", below_zero(es)))[:-4:-1]),
    (agg.top_n("d", 500), lambda es: sorted(known("d", es), reverse=True)),
    (agg.last_n("s", 7), lambda es: ordered(es)[-7:]),
    (agg.last_n("struct(s)", 2, where="i < 0"), lambda es: [*zip(ordered(below_zero(es))[-2:])]),
    (agg.collect("d"), lambda es: sorted(known("d", es))),
    (agg.collect("s", max_values=40), lambda es: sorted(known("s", es))[:40]),
    (agg.collect("s", where="i < 0"), lambda es: sorted(known("s", below_zero(es)))),
    (spread(), lambda es: or_none(lambda v: max(v) - min(v))(known("d", es))),
    (spread(where="i > 100"), lambda _: None),
]
IDS = [str(a) for a, _ in CASES]


def below_zero(events: list[Event]) -> list[Event]:
    return [e for e in events if e.i is not None and e.i < 0]


def partials(rows: DataFrame, *by: Column) -> DataFrame:
    return rows.groupBy(*by).agg(*(a.partial().alias(f"a{n}") for n, (a, _) in enumerate(CASES)))


def merged(parts: DataFrame, *by: Column) -> DataFrame:
    columns = [a.merge(F.col(f"a{n}")).alias(f"a{n}") for n, (a, _) in enumerate(CASES)]
    return parts.groupBy(*by).agg(*columns)


def answers(parts: DataFrame) -> list[Any]:
    """Return the result of each case from any partials."""
    columns = [a.finish(F.col(f"a{n}")).alias(f"a{n}") for n, (a, _) in enumerate(CASES)]
    (row,) = merged(parts).select(*columns).collect()
    return list(row)


EVENTS = some_events()


def in_five() -> Column:
    return F.xxhash64("arrival", "position") % 5


def one_each(rows: DataFrame) -> DataFrame:
    return partials(rows, F.col("arrival"), F.col("position"))


def rolled_up(rows: DataFrame) -> DataFrame:
    parts = partials(rows, F.col("arrival").alias("part"))
    return merged(parts, F.col("part") % 4)


def with_nothing_said(rows: DataFrame) -> DataFrame:
    """Return partials with some parts without events, which are null."""
    numbers = rows.sparkSession.range(-9, 9).toDF("part")
    return numbers.join(partials(rows, in_five().alias("part")), "part", "left").drop("part")


SPLITS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "whole": partials,
    "by hash": lambda rows: partials(rows, in_five()),
    "one each": one_each,
    "rolled up": rolled_up,
    "with null partials": with_nothing_said,
}


SHARED = "by hash, with shared code"
"""The split whose queries share compiled code, so that no constant is folded."""


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[Any]]:
    """Return the results of all cases for each split of the events."""
    rows = frame(spark, EVENTS).cache()
    try:
        results = {name: answers(split(rows)) for name, split in SPLITS.items()}
        with Planner(spark).use_planning(Planning.SOME):
            return {**results, SHARED: answers(SPLITS["by hash"](rows))}
    finally:
        rows.unpersist()


@pytest.mark.parametrize("split", [*SPLITS, SHARED])
@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_partials_of_any_split_merge_into_the_same_result(
    found: dict[str, list[Any]], number: int, split: str
) -> None:
    want, answer = CASES[number][1](EVENTS), found[split][number]
    if isinstance(answer, float):
        assert answer == pytest.approx(want, rel=1e-9)
    else:
        assert answer == want
        assert found["whole"][number] == answer


NOTHING: dict[str, Any] = {"count": 0, "approx_count_distinct": 0, "count_distinct": 0} | {
    "top_k": [],
    "top_n": [],
    "last_n": [],
    "collect": [],
}


@pytest.mark.parametrize(
    "of", ["no partials", "a null partial", "no events", "events without values"]
)
def test_the_result_without_events_or_values(spark: SparkSession, of: str) -> None:
    rows = frame(spark, [Event(0, 0, n, None, None, None, None) for n in range(2)])
    parts = partials(rows if of == "events without values" else rows.where("false"))
    if of == "no partials":
        parts = parts.where("false")
    elif of == "a null partial":
        parts = spark.range(1).join(parts.where("false"), F.lit(True), "left").drop("id")
    for aggregate, answer in zip(IDS, answers(parts), strict=True):
        want = NOTHING.get(aggregate.partition("(")[0])
        if aggregate == "count(*)" and of == "events without values":
            want = 2
        assert answer == want, aggregate


def test_partials_and_merged_partials_can_be_stored(warehouse: Warehouse) -> None:
    rows = frame(warehouse.spark, EVENTS)
    parts = partials(rows.where("arrival > 8"), in_five().alias("part")).drop("part")
    warehouse.ensure_table("partials", parts)
    path = warehouse.path_of("partials")
    parts.write.format("delta").mode("append").save(path)
    rest = merged(partials(rows.where("arrival <= 8"), F.col("arrival")))
    # The sum of decimals gets wider each time that it is summed.
    same = [F.col(f.name).cast(f.dataType) for f in warehouse.read_frame("partials").schema]
    rest.select(same).write.format("delta").mode("append").save(path)
    for (aggregate, want), answer in zip(
        CASES, answers(warehouse.read_frame("partials")), strict=True
    ):
        wanted = want(EVENTS)
        assert answer == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), aggregate


def answer_of(aggregate: Aggregate, rows: DataFrame, *by: Column) -> Any:  # noqa: ANN401
    parts = rows.groupBy(*by).agg(aggregate.partial().alias("p"))
    merge = parts.agg(aggregate.merge(F.col("p")).alias("p"))
    (row,) = merge.select(aggregate.finish(F.col("p"))).collect()
    return row[0]


def test_sums_and_means_of_decimals_are_exact(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, CAST(0.1 AS DECIMAL(10,2)) v FROM range(30)")
    by = F.col("id") % 7
    assert answer_of(agg.sum("v"), rows, by) == Decimal("3.00")
    assert answer_of(agg.mean("v"), rows, by) == Decimal("0.1")


LARGE = 2**63 - 1


def net_result(name: str, values: list[Any]) -> Any:  # noqa: ANN401
    """Return the sum or the mean of the values that were not retracted."""
    if not values:
        return None
    total = sum(values)
    return total if name == "sum" else total / len(values)


def test_sums_depend_only_on_the_values_that_were_not_retracted(spark: SparkSession) -> None:
    """The results are the same for each split of the rows, and for each order."""
    chance = random.Random(5)
    doubles = [1e16, 1.0, 0.1, -3e-7, 1e300, -1e300, 5e-324, -(2.0**56), 255.99999999999997, 0.0]
    rows, kept = list[tuple[Any, ...]](), dict[int, list[float]]()
    for case in range(80):
        added = chance.choices(doubles, k=chance.randrange(1, 7))
        kept[case] = [value for value in added if chance.random() < 0.5]
        retracted = list(added)
        for value in kept[case]:
            retracted.remove(value)
        each = [*((v, LARGE, False) for v in added), *((v, LARGE, True) for v in retracted)]
        chance.shuffle(each)
        rows += [(case, chance.randrange(3), *one) for one in each]
    events = spark.createDataFrame(
        rows, "case INT, part INT, x DOUBLE, i BIGINT, retraction BOOLEAN"
    )
    plain = {"x": agg.sum("x"), "mean": agg.mean("x"), "i": agg.sum("i")}
    signed = {n: a.signed("retraction") for n, a in plain.items() if a.signed is not None}
    partials = [a.partial().alias(n) for n, a in signed.items()]
    merges = [a.merge(F.col(n)).alias(n) for n, a in signed.items()]
    finishes = [a.finish(F.col(n)).alias(n) for n, a in signed.items()]
    overflowed = signed["i"].overflowed
    assert overflowed is not None
    finishes.append(overflowed(F.col("i")).alias("over"))

    def results(*by: str) -> list[Any]:
        merged = events.groupBy("case", *by).agg(*partials).groupBy("case").agg(*merges)
        return sorted(merged.select("case", *finishes).collect())

    found = results("part")
    assert found == results()
    for case, total, mean, whole, over in found:
        count = len(kept[case])
        rounding = 1e-15 * sum(map(abs, kept[case]))
        assert over == (count > 1)
        assert whole == (LARGE if count == 1 else None)
        if count == 0:
            assert (total, mean) == (None, None)
            continue
        exact = math.fsum(kept[case])
        assert total == pytest.approx(exact, rel=1e-15, abs=rounding)
        assert mean == pytest.approx(exact / count, rel=1e-15, abs=rounding)


# Six aggregates of long expressions.
@pytest.mark.slow
def test_retracted_values_leave_no_trace(spark: SparkSession) -> None:
    """Also NaN and infinities, which can't be subtracted, and for each order and split."""
    chance = random.Random(7)
    nasty: list[float | None] = [1.5, -2.0, math.nan, math.inf, -math.inf, None, 0.0, 8.25]
    rows, left = list[tuple[Any, ...]](), dict[int, list[float]]()
    for case in range(60):
        added = chance.choices(nasty, k=chance.randrange(1, 6))
        kept = [chance.random() < 0.5 for _ in added]
        each = [(v, False) for v in added]
        each += [(v, True) for v, stays in zip(added, kept, strict=True) if not stays]
        chance.shuffle(each)
        left[case] = [v for v, stays in zip(added, kept, strict=True) if stays and v is not None]
        for value, retraction in each:
            whole = None if value is None or not math.isfinite(value) else int(min(value, 9))
            rows.append((case, chance.randrange(3), value, whole, retraction))
    events = spark.createDataFrame(
        rows, "case INT, part INT, x DOUBLE, i BIGINT, retraction BOOLEAN"
    ).withColumn("d", F.col("i").cast("decimal(10,2)"))
    plain = {f"{f} {c}": getattr(agg, f)(c) for f in ("sum", "mean") for c in "xid"}
    signed = {n: a.signed("retraction") for n, a in plain.items() if a.signed is not None}
    parts = events.groupBy("case", "part").agg(*(a.partial().alias(n) for n, a in signed.items()))
    merged = parts.groupBy("case").agg(*(a.merge(F.col(n)).alias(n) for n, a in signed.items()))
    found = merged.select("case", *(a.finish(F.col(n)).alias(n) for n, a in signed.items()))
    types = dict(found.dtypes)
    assert (types["sum i"], types["sum x"], types["mean i"]) == ("bigint", "double", "double")
    assert {types[f"{f} d"].partition("(")[0] for f in ("sum", "mean")} == {"decimal"}
    for row in found.collect():
        values = left[row["case"]]
        for name in ("sum", "mean"):
            want = net_result(name, values)
            assert row[f"{name} x"] == pytest.approx(want, nan_ok=True)
            whole = [int(min(v, 9)) for v in values if math.isfinite(v)]
            want = net_result(name, whole)
            assert row[f"{name} i"] == pytest.approx(want)
            assert row[f"{name} d"] == pytest.approx(None if want is None else Decimal(want))


WIDE = Decimal("9" * 38)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_mean_is_computed_even_if_its_sum_overflows(spark: SparkSession, parts: int) -> None:
    rows = spark.sql(f"SELECT id, {LARGE} - id v FROM range(6)")
    mean = answer_of(agg.mean("v"), rows, F.col("id") % parts)
    assert mean == pytest.approx(LARGE)
    assert isinstance(mean, float)


SIZES = {
    # Digits, decimals, and decimals of the mean.
    "tiny": (10, 2, 10),
    "mixed": (20, 10, 12),
    "last": (22, 0, 6),
    "first": (23, 0, 6),
    "small": (27, 26, 28),
    "money": (30, 2, 6),
    "narrow": (33, 0, 5),
    "mostly": (35, 2, 5),
    "large": (38, 0, 0),
    "cents": (38, 2, 2),
    "half": (38, 19, 19),
    "share": (38, 38, 38),
}


def some_decimals(digits: int, decimals: int, seed: int) -> list[Decimal]:
    """Return up to nine values: arbitrary ones, small ones, the largest and the smallest."""
    chance = random.Random(f"{digits} {decimals} {seed}")
    most = 10**digits - 1
    kinds: list[Callable[[], int]] = [
        lambda: chance.randint(-most, most),
        lambda: chance.randint(-9, 9),
        lambda: chance.choice([most, -most]),
        lambda: most - chance.randint(0, 9),
        lambda: chance.randint(-1, 1) * 10 ** chance.randrange(digits),
    ]
    some = chance.sample(kinds, chance.randint(1, 3))
    values = [chance.choice(some)() for _ in range(chance.randint(1, 9))]
    with localcontext(prec=80):
        return [Decimal(v).scaleb(-decimals) for v in values]


def test_means_of_decimals_of_any_size_are_exact(spark: SparkSession) -> None:
    cases = range(150)
    made = {(n, c): some_decimals(*size[:2], c) for n, size in SIZES.items() for c in cases}
    rows = [
        (c, i, *(format(made[n, c][i], "f") if i < len(made[n, c]) else None for n in SIZES))
        for c in cases
        for i in range(9)
    ]
    columns = ["case INT", "i INT", *(f"{n} STRING" for n in SIZES)]
    numbers = [f"CAST({n} AS DECIMAL({p},{s}))" for n, (p, s, _) in SIZES.items()]
    events = spark.createDataFrame(rows, ", ".join(columns)).selectExpr("case", "i", *numbers)
    types = {n: f"decimal(38,{decimals})" for n, (_, _, decimals) in SIZES.items()}
    own = {n: agg.mean(n) for n in SIZES}
    for part, planning in ((F.lit(0), Planning.MANY), (F.col("i") % 3, Planning.SOME)):
        columns = [mean.partial().alias(n) for n, mean in own.items()]
        partials = events.groupBy("case", part.alias("part")).agg(*columns)
        merges = [mean.merge(F.col(n)).alias(n) for n, mean in own.items()]
        means = [mean.finish(F.col(n)).alias(n) for n, mean in own.items()]
        found = partials.groupBy("case").agg(*merges).select("case", *means)
        assert dict(found.dtypes) == {"case": "int", **types}
        with Planner(spark).use_planning(planning):
            results = found.collect()
        for row in results:
            for n, (_, _, decimals) in SIZES.items():
                values = made[n, row["case"]]
                with localcontext(prec=120):
                    total = sum(values, Decimal(0)) / len(values)
                    want = total.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
                assert row[n] == want, (n, values)


@pytest.mark.parametrize("planning", [Planning.SOME, Planning.MANY])
def test_only_the_fields_that_a_type_needs_are_computed(
    spark: SparkSession, planning: Planning, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum of nulls, such as that of a mean's decimal field for doubles, takes as long as others.

    For decimals, it takes longer than everything else in the query.
    """
    own = {"total": agg.sum("x"), "average": agg.mean("x")}
    parts = frame(spark, EVENTS).groupBy("i").agg(*(a.partial().alias(n) for n, a in own.items()))
    merged = parts.groupBy().agg(*(a.merge(F.col(n)).alias(n) for n, a in own.items()))
    with Planner(spark).use_planning(planning):
        merged.explain()
    merging, counting = (
        Counter(re.findall(r"partial_(\w+)", line))
        for line in capsys.readouterr().out.splitlines()
        if "partial_" in line
    )
    assert counting == {"count": 1, "sum": 2, "try_sum": 2}
    assert merging == {"sum": 4, "try_sum": 2}


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([LARGE, -LARGE - 1, LARGE, -1], None),
        ([LARGE, -LARGE - 1, -1], None),
        ([LARGE, -LARGE - 1], -1),
        ([LARGE, 0, None], LARGE),
        ([WIDE, WIDE], None),
        ([WIDE, Decimal(f"-{WIDE}")], 0),
    ],
)
def test_overflow_of_a_sum_depends_only_on_its_values(
    spark: SparkSession, values: list[int | Decimal | None], want: int | None, parts: int
) -> None:
    kind = "DECIMAL(38,0)" if isinstance(values[0], Decimal) else "BIGINT"
    texts = [(n, None if v is None else str(v)) for n, v in enumerate(values)]
    rows = spark.createDataFrame(texts, "id INT, t STRING").selectExpr("id", f"CAST(t AS {kind}) v")
    total = agg.sum("v")
    assert total.overflowed is not None
    over = Aggregate("over", total.partial, total.merge, total.overflowed)
    for by in (F.col("id") % parts, -F.col("id") % parts):
        assert answer_of(total, rows, by) == want
        assert answer_of(over, rows, by) == (want is None)


@pytest.mark.parametrize("kind", ["sum", "mean", "variance", "stddev"])
def test_the_order_of_addition_changes_results_within_the_slack(
    spark: SparkSession, kind: str
) -> None:
    """Use balanced accounts, values far from zero and ordinary values, in twenty orders."""
    chance = random.Random(5)
    cases = {
        "balanced": [v for _ in range(50) for w in [chance.uniform(-1e6, 1e6)] for v in (w, -w)],
        "far": [1e9 + chance.random() for _ in range(100)],
        "plain": [chance.random() for _ in range(100)],
    }
    made: Aggregate = getattr(agg, kind)("v")
    slack_of = made.slack
    assert slack_of is not None
    both = Aggregate(
        kind, made.partial, made.merge, lambda p: F.struct(made.finish(p), slack_of(p))
    )
    rows = [(c, n, v) for c, values in cases.items() for n, v in enumerate(values)]
    events = spark.createDataFrame(rows, "case STRING, n INT, v DOUBLE").cache()
    found: dict[str, list[tuple[float, float]]] = {}
    for parts in range(1, 21):
        part = F.pmod(F.xxhash64("n", F.lit(parts)), F.lit(parts)).alias("part")
        partials = events.groupBy("case", part).agg(both.partial().alias("p"))
        answers = partials.groupBy("case").agg(both.merge(F.col("p")).alias("p"))
        for case, answer in answers.select("case", both.finish(F.col("p"))).collect():
            found.setdefault(case, []).append(tuple(answer))
    for case, answers in found.items():
        slack = max(s for _, s in answers)
        values = [a for a, _ in answers]
        assert max(values) - min(values) <= slack, case
        # The slack is small enough to detect a difference of a cent.
        assert slack < (1e-2 if case != "balanced" or kind in ("sum", "mean") else 1e6), case


def test_the_variance_of_values_far_from_zero_keeps_its_digits(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, 1e9D + id % 3 v FROM range(300)")
    want = statistics.variance([n % 3 for n in range(300)])
    for by in (F.col("id") % 1, F.col("id") % 3, F.col("id") % 100):
        assert answer_of(agg.variance("v"), rows, by) == pytest.approx(want, rel=1e-9)


def test_the_standard_deviation_of_equal_values_is_zero(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, 0.1D v FROM range(30)")
    for by in (F.col("id") % 1, F.col("id") % 7, F.col("id") > 2):
        assert answer_of(agg.stddev("v"), rows, by) == 0


def test_arrival_order_decides_between_events_at_one_instant(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [
            Event(5, 1, 0, 1, None, None, "second"),
            Event(5, 0, 9, 2, None, None, "first"),
            Event(5, 1, 1, 3, None, None, "third"),
            Event(4, 7, 0, 4, None, None, None),
            Event(6, 7, 1, 5, None, None, None),
        ],
    )
    assert answer_of(agg.first("s"), rows) == "first"
    assert answer_of(agg.last("s"), rows) == "third"
    assert answer_of(agg.last("i"), rows, F.col("arrival")) == 5


@pytest.mark.parametrize("distinct", [400, 3000, 40_000])
def test_a_distinct_count_sketch_does_not_depend_on_the_split(
    spark: SparkSession, distinct: int
) -> None:
    rows = spark.range(2 * distinct).select("id", (F.col("id") % distinct).alias("v"))
    splits = [F.col("id") % 1, F.col("id") % 2, F.xxhash64("id") % 30]
    (found,) = {answer_of(agg.approx_count_distinct("v"), rows, by) for by in splits}
    assert found == pytest.approx(distinct, rel=0.05)


def test_distinct_values_of_any_type_are_counted(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT '' s, 0.0D x, timestamp_micros(0) t UNION ALL "
        "SELECT 'a', -0.0D, timestamp_micros(1) UNION ALL SELECT null, double('NaN'), null"
    )
    for count in (agg.approx_count_distinct, agg.count_distinct):
        assert [answer_of(count(c), rows) for c in ("s", "x", "t")] == [2, 2, 2]


NESTED = {
    "array<string>": """[] [null] [null,null] ["a"] ["a",null] [null,"a"] ["v"] ["null"] ["a,null"]
        ["\\"a\\""] ["ab"] ["a","b"]""",
    "array<array<int>>": """[[]] [[],[]] [[1],[2]] [[1,2]] [null,[1,2]] [[1,2],null] [[null]]
        [[],[1,2]] [[1,2],[]]""",
    "struct<a: int, b: struct<c: string>>": """{} {"a":1} {"b":{}} {"b":{"c":"1"}}
        {"a":1,"b":{"c":"1"}} {"a":1,"b":{}}""",
    "array<double>": '[0.0] [1e300] ["NaN"] ["-Infinity"] [null] [0.0,null]',
    "array<timestamp>": '["2026-01-01T00:00:00.000001Z"] ["2026-01-01T00:00:00.000002Z"]',
    "array<boolean>": "[true] [false] [null]",
}
LONG = f'["{20_000 * "x"}"]'


@pytest.mark.parametrize("kind", NESTED)
def test_distinct_arrays_and_structs_are_counted(spark: SparkSession, kind: str) -> None:
    texts = [*NESTED[kind].split(), *([LONG] if kind == "array<string>" else [])]
    twice = spark.createDataFrame([(t,) for t in 2 * [*texts, None]], "t STRING")
    rows = twice.select(F.from_json("t", kind).alias("v"))
    distinct = rows.where("v IS NOT NULL").distinct().count()
    assert distinct == len(texts)
    for count in (agg.approx_count_distinct, agg.count_distinct):
        assert answer_of(count("v"), rows, F.expr("rand() > 0.5")) == distinct


def test_zeros_and_nans_in_arrays_count_once_each(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT explode(array(array(0.0D), array(-0.0D), array(double('NaN')), array(0D/1))) v"
    )
    assert answer_of(agg.count_distinct("v"), rows) == 2


@pytest.mark.parametrize("max_values", [1, 15, 16, 17, 1000])
def test_distinct_values_are_counted_up_to_the_bound(spark: SparkSession, max_values: int) -> None:
    bounded = agg.count_distinct("v", max_values=max_values)
    for distinct in (max_values, max_values + 1, 3 * max_values, 50 * max_values):
        rows = spark.range(100 * max_values).select("id", (F.col("id") % distinct).alias("v"))
        want = distinct if distinct <= max_values else None
        assert answer_of(bounded, rows, F.col("id") % 3) == want


@pytest.mark.parametrize("kind", ["int", "string", "double", "decimal(10,2)", "timestamp", "date"])
def test_top_k_is_exact_up_to_the_bound_and_null_beyond(spark: SparkSession, kind: str) -> None:
    at = "timestamp_micros(v)" if kind == "timestamp" else f"CAST(v AS {kind})"
    value = "date_add(date'2000-01-01', v)" if kind == "date" else at
    rows = spark.sql(
        f"SELECT id, {value} v FROM (SELECT id, CAST(id % (1 + id % 20) AS INT) v FROM range(2000))"
    )
    values = [r[0] for r in rows.select("v").collect()]
    by = F.col("id") % 9
    assert len({*values}) == 20
    assert answer_of(agg.top_k("v", 4, max_values=20), rows, by) == most_frequent(values, 4)
    assert answer_of(agg.top_k("v", 20, max_values=20), rows, by) == most_frequent(values, 20)
    assert answer_of(agg.top_k("v", 4, max_values=19), rows, by) is None


def test_top_k_applies_the_bound_to_all_parts_together(spark: SparkSession) -> None:
    """Each part is within the bound, but all parts together are not."""
    rows = spark.range(60).toDF("v")
    assert answer_of(agg.top_k("v", 1, max_values=20), rows, F.col("v") % 6) is None
    assert answer_of(agg.top_k("v", 1, max_values=60), rows, F.col("v") % 6) == [(0, 1)]


UNUSUAL: dict[str, list[list[str]]] = {
    # In the engine's order, from the least; those in one list are equal.
    "double": [
        ["-Infinity"],
        ["-1"],
        ["-0.0", "0.0"],
        ["5e-324"],
        ["1e300"],
        ["Infinity"],
        ["NaN"],
    ],
    "string": [[""], ["A"], ["a"], ["ab"], ["ä"], ["\U0001f600"]],
    "decimal(38,2)": [["-9.99"], ["0.00", "0"], ["0.01"], [36 * "9" + ".99"]],
    "timestamp": [["0001-01-01"], ["1969-12-31 23:59:59.999999"], ["1970-01-01"], ["9999-12-31"]],
    "boolean": [["false"], ["true"]],
    "array<double>": [
        ["[]"],
        ["[null]"],
        ["[null,1]"],
        ["[-0.0]", "[0.0]"],
        ["[0.0,null]"],
        ["[1]"],
    ],
    "struct<a: int, b: string>": [["{}"], ['{"b":"x"}'], ['{"a":1}'], ['{"a":1,"b":""}']],
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_the_order_of_unusual_values_does_not_depend_on_the_split(
    spark: SparkSession, kind: str
) -> None:
    chance = random.Random(kind)
    ranks = {text: rank for rank, texts in enumerate(UNUSUAL[kind]) for text in texts}
    given = [(n % 8, n // 8, chance.choice([*ranks, None]), chance.randrange(5)) for n in range(90)]
    value = f"from_json(t, '{kind}')" if "<" in kind else f"CAST(t AS {kind})"
    rows = spark.createDataFrame(given, "arrival BIGINT, position BIGINT, t STRING, at INT")
    rows = rows.select("*", F.expr(value).alias("v"), F.timestamp_seconds("at").alias(HAPPENED_AT))
    known = [(*row, ranks[row[2]]) for row in given if row[2] is not None]
    best = [r[2] for r in sorted(known, key=lambda r: (-r[4], r[0], r[1]))]
    latest = [r[2] for r in sorted(known, key=lambda r: (r[3], r[0], r[1]))]
    cases = [
        # Texts, because they also distinguish values that are equal.
        (agg.top_n("t", 40, by="v"), best[:40]),
        (agg.top_n("t", 99, by="v"), best),
        (agg.last_n("t", 40, where="v IS NOT NULL"), latest[-40:]),
    ]
    for by in (F.col("at"), F.col("arrival"), F.pmod(F.xxhash64("arrival", "position"), F.lit(7))):
        for aggregate, want in cases:
            assert answer_of(aggregate, rows, by) == want


def test_quantiles_are_existing_values(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(v,) for v in (40, 10, 30, 20)], "v INT")
    shares = {0.0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.51: 30, 0.75: 30, 0.76: 40, 1.0: 40}
    assert {at: answer_of(agg.quantile("v", at), rows) for at in shares} == shares
    hundred = spark.range(1, 101).toDF("v")
    assert [answer_of(agg.quantile("v", s / 100), hundred) for s in (7, 29, 57)] == [7, 29, 57]


def test_quantiles_are_exact_up_to_the_bound_and_approximate_beyond(spark: SparkSession) -> None:
    median = agg.quantile("v", 0.5, exact_to=1000)
    for count, error in ((1000, 0), (100_000, 1000)):
        rows = spark.range(1, count + 1).toDF("v")
        for by in (F.col("v") % 1, F.xxhash64("v") % 11):
            assert answer_of(median, rows, by) == pytest.approx(count / 2, abs=error)


def test_collect_keeps_the_least_values(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(v,) for v in (5, 3, None, 3, 9, 1)], "v INT")
    by = F.coalesce("v", F.lit(0)) % 2
    assert answer_of(agg.collect("v", max_values=3), rows, by) == [1, 3, 3]
    assert answer_of(agg.collect("v"), rows, by) == [1, 3, 3, 5, 9]


def test_python_functions_get_values_and_partials_in_order(spark: SparkSession) -> None:
    joined = agg.python(
        "joined",
        "s",
        partial="".join,
        merge=lambda parts: "|".join(parts),
        finish=lambda p: p.upper(),
        partial_type="string",
        result_type="string",
        where="i > 0",
    )
    assert str(joined) == "joined(s) where i > 0"
    rows = spark.createDataFrame([Row(i=i, s=s) for i, s in enumerate("zcadb")])
    assert answer_of(joined, rows, F.col("i") % 2) == "AB|CD"


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        (
            lambda: agg.quantile("v", 95),
            "quantile: q must be a number from 0 to 1 \\(got 95",
        ),
        (lambda: agg.quantile("v", float("nan")), "from 0 to 1 \\(got nan"),
        (lambda: agg.quantile("v", True), "quantile: q must be a number"),
        (lambda: agg.quantile("v", 1, exact_to=7), "'exact_to' of quantile .* from 8 to 65,535"),
        (
            lambda: agg.top_k("v", 0),
            "The 'k' of top_k must be a whole number from 1 to 10,000 \\(got 0",
        ),
        (
            lambda: agg.top_k("v", 6, max_values=5),
            "'k' of top_k must be a whole number from 1 to 5 \\(got 6",
        ),
        (lambda: agg.top_k("v", True), "top_k: k must be a whole number"),
        (
            lambda: agg.collect("v", max_values=0),
            "'max_values' of collect .* from 1 to 999,999 \\(got 0",
        ),
        (
            lambda: agg.count_distinct("v", max_values=10**6),
            "'max_values' of count_distinct .* 1000000",
        ),
        (lambda: agg.top_n("v", 0), "'n' of top_n must be a whole number from 1 to 100,000"),
        (lambda: agg.last_n("v", 100_001), "'n' of last_n .* \\(got 100001"),
    ],
)
def test_arguments_out_of_range_are_refused(
    definition: Callable[[], Aggregate], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        definition()


def test_an_aggregates_name_contains_all_its_arguments() -> None:
    assert str(agg.count(where="a > 1")) == "count(*) where a > 1"
    assert str(agg.top_k("a", 3)) == "top_k(a, 3)"
    assert str(agg.top_k("a", 3, max_values=50, where="b")) == "top_k(a, 3, max_values=50) where b"
    assert str(agg.top_n("a", 3, where="b")) == "top_n(a, 3) where b"
    assert str(agg.top_n("a", 3, by="b")) == "top_n(a, 3, by=b)"
    assert str(agg.last_n("a", 3)) == "last_n(a, 3)"
    assert str(agg.quantile("a", 0.5, exact_to=99)) == "quantile(a, 0.5, exact_to=99)"


@pytest.mark.parametrize("argument", ["partial_type", "result_type"])
def test_an_unknown_type_is_refused_at_definition(argument: str) -> None:
    types = {"partial_type": "int", "result_type": "int", argument: "nothing"}
    refused = f"Aggregate 'wrong' can't have {argument}='nothing': 'nothing' is not a"
    with pytest.raises(DefinitionError, match=refused):
        agg.python("wrong", "id", partial=len, merge=sum, finish=abs, **types)
