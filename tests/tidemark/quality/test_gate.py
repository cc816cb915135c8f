"""Tests of the quality gate and the quarantine, with manual decisions and killed runs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helpers.data.runs import published_through
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    check_results,
    ingest,
    some_arrivals,
)
from helpers.suite.nightly import NIGHTLY, mostly_nightly
from tidemark import expect as q
from tidemark.base import thresholds
from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.windows import Session, Sliding
from tidemark.quality import quarantine, results
from tidemark.quality.quarantine import Choice
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.lineage import StaleError
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

BELOW_5 = replace(PER_MINUTE, expectations=(q.between("most", max_value=5),))


def reading(minute: float, sensor: str, value: float) -> Event:
    return Event(T0 + int(minute * MINUTE), sensor, value)


def rows(warehouse: Warehouse, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = warehouse.read_frame(table).withColumn(
        "minute", ((F.unix_micros("window_start") - T0) / MINUTE).cast("int")
    )
    return sorted((tuple(r) for r in found.select("minute", "sensor", *columns).collect()), key=str)


def published(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return rows(warehouse, "per_minute", "n", "most", "quality")


def withheld(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return rows(warehouse, "per_minute_quarantine", "n", "most", "quarantine_status")


# A dozen runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_quarantined_window_is_validated_again_when_it_changes(warehouse: Warehouse) -> None:
    """Window 0 of b fails from the start. Window 1 of b passes until a late event makes it fail.

    Then the source ends.

        arrival   0              1              2            3
        a         0:10 1         1:10 1         3:10 1       3:50 1
        b         0:20 9         1:20 1                      1:30 8 (late)
    """
    first = [
        [reading(0.2, "a", 1), reading(0.4, "b", 9)],
        [reading(1.2, "a", 1), reading(1.4, "b", 1)],
        [reading(3.2, "a", 1)],
    ]
    ingest(warehouse, READINGS, first, ends=False)
    facts = incremental(warehouse, BELOW_5)
    assert facts is not None
    assert (facts.windows, facts.quarantined) == (3, 1)
    good = [(0, "a", 1, 1.0, "passed"), (1, "a", 1, 1.0, "passed"), (1, "b", 1, 1.0, "passed")]
    assert published(warehouse) == good
    assert withheld(warehouse) == [(0, "b", 1, 9.0, "quarantined")]
    (held,) = warehouse.read_frame("per_minute_quarantine").collect()
    assert [f.asDict() for f in held["failed_expectations"]] == [
        {
            "expectation": "between(most, max_value=5)",
            "level": "error",
            "observed": "9",
            "expected": "at most 5",
        }
    ]
    assert check_parity(warehouse, BELOW_5).is_equal

    # The last valid row stays published instead of the revision that fails.
    ingest(warehouse, READINGS, [[reading(3.8, "a", 1), reading(1.5, "b", 8)]], ends=False)
    facts = incremental(warehouse, BELOW_5)
    assert facts is not None
    assert facts.quarantined == 1
    assert published(warehouse) == good
    assert withheld(warehouse) == [(0, "b", 1, 9.0, "quarantined"), (1, "b", 2, 8.0, "quarantined")]
    assert check_parity(warehouse, BELOW_5).is_equal

    # With another limit, a quarantined window passes and leaves the quarantine.
    wider = replace(BELOW_5, expectations=(q.between("most", max_value=8.5),))
    facts = backfill(warehouse, wider)
    assert (facts.windows, facts.quarantined) == (3, 1)
    assert (1, "b", 2, 8.0, "passed") in published(warehouse)
    assert withheld(warehouse) == [(0, "b", 1, 9.0, "quarantined")]
    ingest(warehouse, READINGS, [])
    incremental(warehouse, replace(BELOW_5, expectations=(q.between("most", max_value=10),)))
    assert [r[:2] for r in published(warehouse)] == [
        *[(0, "a"), (0, "b"), (1, "a"), (1, "b"), (3, "a")]
    ]
    assert withheld(warehouse) == []


# A dozen runs.
@pytest.mark.slow
def test_a_backfill_keeps_the_last_valid_row_and_manual_decisions(warehouse: Warehouse) -> None:
    events = [[reading(0.2, "a", 9), reading(0.4, "b", 1), reading(1, "a", 7)]]
    ingest(warehouse, READINGS, events)
    backfill(warehouse, replace(BELOW_5, expectations=()))
    assert {r[-1] for r in published(warehouse)} == {None}

    facts = backfill(warehouse, BELOW_5)
    assert (facts.windows, facts.quarantined) == (1, 2)
    assert published(warehouse) == [
        (0, "a", 1, 9.0, None),
        (0, "b", 1, 1.0, "passed"),
        (1, "a", 1, 7.0, None),
    ]
    assert withheld(warehouse) == [(0, "a", 1, 9.0, "quarantined"), (1, "a", 1, 7.0, "quarantined")]

    with pytest.raises(DataError, match="No such window of 'per_minute' is quarantined"):
        quarantine.release_windows(warehouse, BELOW_5, Choice(keys={"sensor": "b"}))
    with pytest.raises(DefinitionError, match="has no key 'origin'; its keys: sensor"):
        quarantine.release_windows(warehouse, BELOW_5, Choice(keys={"origin": "b"}))
    first, second = Choice(end=T0 + MINUTE), Choice(start=T0 + MINUTE)
    assert quarantine.release_windows(warehouse, BELOW_5, first) == [T0]
    assert quarantine.discard_windows(warehouse, BELOW_5, second) == [T0 + MINUTE]
    decided = [(0, "a", 1, 9.0, "released"), (0, "b", 1, 1.0, "passed"), (1, "a", 1, 7.0, None)]
    assert published(warehouse) == decided
    assert withheld(warehouse) == [(1, "a", 1, 7.0, "discarded")]

    # Unchanged windows keep their decision.
    assert backfill(warehouse, BELOW_5).quarantined == 1
    assert published(warehouse) == decided
    assert withheld(warehouse) == [(1, "a", 1, 7.0, "discarded")]
    assert check_parity(warehouse, BELOW_5).is_equal


def test_a_definition_with_other_keys_decides_nothing(warehouse: Warehouse) -> None:
    """A row that it released would replace the rows of all sensors in the window."""
    arrivals = [[reading(0.2, "a", 1), reading(0.4, "b", 2)], [reading(2, "b", 1)]]
    ingest(warehouse, READINGS, arrivals, ends=False)
    incremental(warehouse, BELOW_5)
    ingest(warehouse, READINGS, [[reading(0.6, "a", 9)]], ends=False)
    incremental(warehouse, BELOW_5)
    before = published(warehouse), withheld(warehouse)
    assert before[1] == [(0, "a", 2, 9.0, "quarantined")]
    for decide in (quarantine.release_windows, quarantine.discard_windows):
        with pytest.raises(StaleError, match=r"differs in keys \(sensor → none\)"):
            decide(warehouse, replace(BELOW_5, keys=()), Choice())
    assert (published(warehouse), withheld(warehouse)) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregates": {"n": agg.count(), "most": agg.max("value"), "lowest": agg.min("value")}},
        {"keys": ()},
    ],
    ids=["aggregates", "keys"],
)
def test_a_backfill_by_another_definition_keeps_no_earlier_row(
    warehouse: Warehouse, changes: dict[str, Any]
) -> None:
    ingest(
        warehouse, READINGS, [[reading(0.2, "a", 1), reading(0.4, "b", 9), reading(1.2, "a", 1)]]
    )
    before = incremental(
        warehouse, replace(BELOW_5, expectations=(q.between("most", max_value=10),))
    )
    assert before is not None
    assert (before.windows, before.quarantined) == (3, 0)
    column = "lowest" if "aggregates" in changes else "most"
    checks = (*BELOW_5.expectations, q.max_change_after_close(0.1, column), q.no_gap(5))
    facts = backfill(warehouse, replace(BELOW_5, expectations=checks, **changes))
    assert facts.quarantined == 1
    left = warehouse.read_frame("per_minute")
    assert [r["most"] for r in left.collect()] == [1.0] * (1 if "keys" in changes else 2)
    assert {*changes.get("aggregates", ())} <= {*left.columns}


def test_warnings_publish_and_a_row_set_fails_as_a_whole(
    warehouse: Warehouse,
    gxe: Any,  # noqa: ANN401
) -> None:
    ingest(warehouse, READINGS, [[reading(0.2, "a", 9), reading(0.4, "b", 1)]])
    warned = replace(
        PER_MINUTE,
        expectations=(
            q.between("most", max_value=5, level="warning"),
            gxe.ExpectColumnMeanToBeBetween(column="most", max_value=10, severity="warning"),
        ),
    )
    facts = backfill(warehouse, warned)
    assert (facts.windows, facts.quarantined, facts.warned) == (2, 0, 1)
    assert [r[-1] for r in published(warehouse)] == ["warned", "passed"]
    found = check_results(warehouse, "per_minute", facts.commit_number)
    told = {r.expectation.partition("(")[0]: (r.success, r.observed) for r in found}
    assert told == {
        "between": (False, "9 (2023-11-14T22:14:00Z, a)"),
        "ExpectColumnMeanToBeBetween": (True, "5.0"),
    }
    assert [(r.rows_validated, r.rows_failed) for r in found] == [(2, 1), (2, 0)]

    strict = replace(PER_MINUTE, expectations=(gxe.ExpectTableRowCountToBeBetween(max_value=1),))
    facts = backfill(warehouse, strict)
    assert (facts.windows, facts.quarantined) == (0, 2)
    assert [r[-1] for r in published(warehouse)] == ["warned", "passed"]


# A dozen runs.
@pytest.mark.slow
def test_a_run_killed_in_the_gate_is_completed_by_the_next(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = replace(
        BELOW_5,
        expectations=(*BELOW_5.expectations, q.max_change_after_close(0.1), q.matches_log()),
    )
    ingest(warehouse, READINGS, [[reading(0.2, "a", 9), reading(0.4, "b", 1)]])

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    replace_ = warehouse.replace_rows

    def die_publishing(rows: Rows, table: str, *others: Any, **options: Any) -> object:  # noqa: ANN401
        if table == "per_minute":
            return die()
        return replace_(rows, table, *others, **options)

    for place, name, end in (
        (quarantine, "commit_changes", die),
        (warehouse, "replace_rows", die_publishing),
        (ledger, "add_run", die),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, end)
            with pytest.raises(KeyboardInterrupt):
                incremental(warehouse, asset)
    assert published_through(warehouse, asset) == -1
    # Windows that wait for the next run can be released only after it.
    with pytest.raises(
        ConflictError, match="it was killed, `tidemark run per_minute` completes it"
    ):
        quarantine.release_windows(warehouse, asset, Choice())
    incremental(warehouse, asset)
    assert published(warehouse) == [(0, "b", 1, 1.0, "passed")]
    assert withheld(warehouse) == [(0, "a", 1, 9.0, "quarantined")]
    found = check_results(warehouse, "per_minute")
    assert [(r.expectation, r.success) for r in found] == [
        ("between(most, max_value=5)", False),
        ("max_change_after_close(0.1, events)", True),
        ("matches_log()", True),
    ]
    assert quarantine.release_windows(warehouse, asset, Choice()) == [T0]


@pytest.mark.slow
def test_windows_of_a_publishing_run_cannot_be_released(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backfill has quarantined a window but not yet replaced the published windows."""
    ingest(warehouse, READINGS, [[reading(0.2, "a", 9), reading(0.4, "b", 1)]])
    replace_, refused = warehouse.replace_rows, list[str]()

    def beside_a_person(rows: Rows, table: str, *place: Any, **others: Any) -> int | None:  # noqa: ANN401
        if table == "per_minute":
            with pytest.raises(ConflictError) as told:
                quarantine.release_windows(warehouse, BELOW_5, Choice())
            refused.append(str(told.value))
        return replace_(rows, table, *place, **others)

    with monkeypatch.context() as patch:
        patch.setattr(warehouse, "replace_rows", beside_a_person)
        backfill(warehouse, BELOW_5)
    assert refused == [
        "A run of 'per_minute' is publishing 1 of these windows. Try again when it finishes. If it "
        "was killed, `tidemark run per_minute` completes it."
    ]
    assert published(warehouse) == [(0, "b", 1, 1.0, "passed")]
    assert withheld(warehouse) == [(0, "a", 1, 9.0, "quarantined")]
    assert quarantine.release_windows(warehouse, BELOW_5, Choice()) == [T0]
    decided = [(0, "a", 1, 9.0, "released"), (0, "b", 1, 1.0, "passed")]
    assert (published(warehouse), withheld(warehouse)) == (decided, [])
    assert check_parity(warehouse, BELOW_5).is_equal


KINDS = [
    PER_MINUTE,
    replace(PER_MINUTE, window=Sliding("2 minutes", "1 minute"), trigger=Trigger(EachArrival())),
    replace(PER_MINUTE, window=Session("20 seconds")),
]


# A dozen runs of each kind of window.
@pytest.mark.slow
@pytest.mark.parametrize(
    "asset", mostly_nightly(KINDS), ids=["tumbling", "sliding, early", "session"]
)
def test_no_correct_window_is_quarantined(warehouse: Warehouse, asset: WindowedTransform) -> None:
    """This covers late and too-late events, early firings, merging sessions and both results."""
    asset = replace(asset, expectations=(q.matches_log(), q.unique_key()))
    arrivals: Sequence[Sequence[Event]] = some_arrivals(count=5, size=16)
    ingest(warehouse, READINGS, arrivals[:3], ends=False)
    incremental(warehouse, asset, limit=2)
    incremental(warehouse, asset)
    backfill(warehouse, asset, late_events="include")
    ingest(warehouse, READINGS, arrivals[3:])
    incremental(warehouse, asset)
    backfill(warehouse, asset)
    failed = [
        r.asDict() for r in warehouse.read_frame(results.TABLE).where("NOT success").collect()
    ]
    assert failed == []
    assert warehouse.read_frame(asset.quarantine_table).isEmpty()
    assert check_parity(warehouse, asset).is_equal


def nasty(rows: DataFrame) -> DataFrame:
    """Add columns with unusual values, selected by the sensor's name."""

    def by_sensor(kind: str, **values: str) -> Column:
        cases = " ".join(f"WHEN '{sensor}' THEN {value}" for sensor, value in values.items())
        return F.expr(f"CAST(CASE sensor {cases} ELSE '5' END AS {kind})")

    return rows.withColumns(
        {
            "double": by_sensor("DOUBLE", nan="'NaN'", null="NULL", infinite="'Infinity'"),
            "exact": by_sensor("DECIMAL(10,2)", tenth="'0.1'", less="'0.09'", null="NULL"),
            "whole": by_sensor("BIGINT", big="'9007199254740993'", null="NULL"),
        }
    )


@pytest.mark.parametrize("few", [pytest.param(100_000, marks=NIGHTLY), 2])
def test_few_and_many_rows_are_validated_alike(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """A row has the same result in memory and in chunks of two rows."""
    monkeypatch.setattr(thresholds, "VALIDATED_ROWS", few)
    sensors = ("nan", "null", "infinite", "tenth", "less", "big", "plain")
    ingest(warehouse, READINGS, [[reading(0.1, each, 1) for each in sensors]])
    asset = replace(
        PER_MINUTE,
        function=nasty,
        aggregates={f"of_{c}": agg.max(c) for c in ("double", "exact", "whole")},
        expectations=(
            q.between("of_double", 0, 100),
            q.between("of_exact", 0.1, 1000),
            q.one_of("of_whole", [2**53, 5]),
            q.column_greater("of_whole", "of_exact", level="warning"),
            q.matches_log(),
        ),
    )
    backfill(warehouse, asset)
    held = warehouse.read_frame("per_minute_quarantine").collect()
    assert {
        row["sensor"]: [(f["expectation"], f["observed"]) for f in row["failed_expectations"]]
        for row in held
    } == {
        "nan": [("between(of_double, 0, 100)", "NaN"), WARNED],
        "infinite": [("between(of_double, 0, 100)", "inf"), WARNED],
        "less": [("between(of_exact, 0.1, 1000)", "0.09")],
        "big": [("one_of(of_whole, [9007199254740992, 5])", "9007199254740993")],
    }
    good = warehouse.read_frame("per_minute").select("sensor", "quality").collect()
    assert {tuple(row) for row in good} == {
        ("null", "passed"),
        ("tenth", "passed"),
        ("plain", "warned"),
    }
    found = check_results(warehouse, "per_minute")
    assert [(r.rows_validated, r.rows_failed) for r in found] == [
        (7, 2),
        (7, 1),
        (7, 1),
        (7, 3),
        (7, 0),
    ]
    assert check_parity(warehouse, asset).is_equal


WARNED = ("column_greater(of_whole, of_exact)", "of_exact=5.00, of_whole=5")


def with_lists(rows: DataFrame) -> DataFrame:
    return rows.withColumn("list", F.from_json("sensor", "array<string>"))


def test_each_failing_row_is_quarantined_whatever_its_keys_are(warehouse: Warehouse) -> None:
    lists = ("[]", "[null]", '["a"]', '["a",null]', '[null,"a"]', "null")
    ingest(warehouse, READINGS, [[reading(0.1, each, 1) for each in lists]])
    asset = replace(
        PER_MINUTE, keys=("list",), function=with_lists, expectations=(q.between("n", 2, 100),)
    )
    facts = backfill(warehouse, asset)
    assert (facts.windows, facts.quarantined) == (0, len(lists))
    held = [row["list"] for row in warehouse.read_frame("per_minute_quarantine").collect()]
    assert sorted(held, key=str) == sorted(map(json.loads, lists), key=str)
    assert warehouse.read_frame("per_minute").isEmpty()
    assert check_parity(warehouse, asset).is_equal


def test_an_expectation_that_cannot_be_validated_is_refused(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, [[reading(0.2, "a", 9)]])
    listed = {"least": agg.min("value"), "all_values": agg.collect("value")}
    asset = replace(PER_MINUTE, aggregates=listed, expectations=(q.between("all_values", 0, 1),))
    with pytest.raises(DefinitionError, match=r"between\(all_values, 0, 1\) can't be validated"):
        backfill(warehouse, asset)
