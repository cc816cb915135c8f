"""Tests of sums that overflow their type: their windows are quarantined, and others continue."""

import json
import random
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE, READINGS, T0, Event, ingest
from helpers.suite.nightly import NIGHTLY
from tidemark import expect as q
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.quality import quarantine
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

REASON = "values_fit()"


def in_nanoseconds(rows: DataFrame) -> DataFrame:
    return rows.withColumn("ns", F.expr("CAST(value AS BIGINT) * 1000000000000000000"))


SUMS = replace(
    PER_MINUTE,
    function=in_nanoseconds,
    aggregates={"n": agg.count(), "total": agg.sum("ns"), "average": agg.mean("ns")},
)
KINDS = [
    SUMS,
    pytest.param(
        replace(SUMS, expectations=(q.not_null("n"), q.between("average", max_value=8e18))),
        marks=NIGHTLY,
    ),
    pytest.param(replace(SUMS, window=Session("20 seconds")), marks=NIGHTLY),
]


def reading(second: int, sensor: str, value: float) -> Event:
    return Event(T0 + second * 1_000_000, sensor, value)


@pytest.mark.parametrize("asset", KINDS, ids=["plain", "with expectations", "sessions"])
def test_a_window_that_overflows_is_quarantined_and_others_continue(
    warehouse: Warehouse, asset: WindowedTransform
) -> None:
    """The sums 4 + 6 and 5 + 5 overflow in nanoseconds, even if -5 - 5 brings the total to 0.

    The means of these windows stay within the bounds.
    """
    arrivals = [
        [reading(1, "large", 4), reading(2, "small", 4), reading(3, "even", 5)],
        [reading(4, "large", 6), reading(5, "even", 5), reading(6, "even", -5)],
        [reading(7, "even", -5), reading(200, "late", 1)],
        [reading(400, "small", 9), reading(401, "large", 1)],
    ]
    for arrival in arrivals:
        ingest(warehouse, READINGS, [arrival], ends=False)
        assert incremental(warehouse, asset) is not None
        if arrival is arrivals[0]:
            # No window has fired, so none has overflowed.
            assert warehouse.has_table(asset.quarantine_table) == bool(asset.expectations)
    ingest(warehouse, READINGS, [])
    incremental(warehouse, asset)

    def published() -> set[tuple[str, int, int | None]]:
        rows = warehouse.read_frame(asset.published_table).select("sensor", "n", "total").collect()
        return {(row[0], row[1], None if row[2] is None else row[2] // 10**18) for row in rows}

    def held() -> set[tuple[str, int, str]]:
        rows = warehouse.read_frame(asset.quarantine_table).collect()
        return {
            (r["sensor"], r["n"], f["expectation"]) for r in rows for f in r["failed_expectations"]
        }

    good = {("small", 1, 4), ("late", 1, 1), ("small", 1, 9), ("large", 1, 1)}
    bad = {("large", 2, REASON), ("even", 4, REASON)}
    if asset.expectations:
        good -= {("small", 1, 9)}
        bad |= {("small", 1, "between(average, max_value=8e+18)")}
    assert (published(), held()) == (good, bad)
    assert check_parity(warehouse, asset).is_equal
    facts = backfill(warehouse, asset)
    assert (facts.windows, facts.quarantined) == (len(good), len(bad))
    assert (published(), held()) == (good, bad)
    assert check_parity(warehouse, asset).is_equal
    assert quarantine.count_windows(warehouse, asset).by_expectation[REASON] == 2
    recorded = warehouse.read_frame("checks").where(
        (F.col("expectation") == REASON) & ~F.col("success")
    )
    failures = [f for row in recorded.collect() for f in row["failures"]]
    assert {json.loads(f["keys"])["sensor"] for f in failures} == {"large", "even"}
    assert {f["observed"] for f in failures} == {"too large: total"}


def test_a_window_that_no_longer_overflows_leaves_the_quarantine(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, [[reading(1, "a", 6), reading(2, "a", 6), reading(61, "a", 1)]])
    assert backfill(warehouse, SUMS).quarantined == 1
    wider = {"total": agg.sum("ns + 0BD"), "average": agg.mean(f"ns * {10**19}BD")}
    wider["added"] = agg.count()
    in_decimals = replace(SUMS, aggregates={**SUMS.aggregates, **wider})
    facts = backfill(warehouse, replace(in_decimals, name="per_minute"))
    assert (facts.windows, facts.quarantined) == (2, 0)
    assert warehouse.read_frame(SUMS.quarantine_table).isEmpty()
    means = {row["average"] for row in warehouse.read_frame(SUMS.published_table).collect()}
    # Twice the first value has 39 digits.
    assert means == {6 * 10**37, 10**37}
    assert check_parity(warehouse, in_decimals).is_equal


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_batch_and_stream_agree_on_balanced_accounts(warehouse: Warehouse) -> None:
    """The amounts of an account add up to zero; the remainder is a rounding error."""
    chance = random.Random(3)
    accounts: dict[str, list[float]] = {}
    for n in range(40):
        amounts = [round(chance.uniform(-1000, 1000), 2) for _ in range(7)]
        accounts[f"account{n}"] = [*amounts, -sum(amounts)]
    # Each arrival has two amounts per account. A stream adds their sum to the stored one, and a
    # batch adds all amounts one by one.
    steps = [
        [reading(i, a, v) for a, vs in accounts.items() for v in vs[i : i + 2]]
        for i in range(0, 8, 2)
    ]
    asset = replace(
        PER_MINUTE,
        aggregates={"total": agg.sum("value"), "average": agg.mean("value")},
        expectations=(q.max_change_after_close(0.5, "total", level="warning"),),
    )
    for step in [*steps, [reading(90, "account0", 1)], [reading(4, "account1", 1e-9)]]:
        ingest(warehouse, READINGS, [step], ends=False)
        incremental(warehouse, asset)
    ingest(warehouse, READINGS, [])
    incremental(warehouse, asset)
    assert check_parity(warehouse, asset).is_equal
    backfill(warehouse, asset)
    assert check_parity(warehouse, asset).is_equal
    moved = warehouse.read_frame("checks").where("NOT success").count()
    assert moved == 0
