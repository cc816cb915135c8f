"""Tests of tracing an event to every row that contains it, and to no other row.

    arrival    0        1        2          3          4               5
    a          0:12 1   1:30 1   3:30 9     1:18 1                     0:18 1
    b                                                  6:30 6:31 6:32  without a time
    watermark  -        -0:48    0:30       2:30       2:30            5:32

The watermark is the one before the arrival. Windows are one minute and accept late events for two.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest
from tidemark import expect as q
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.triggers.trigger import Count, EachArrival, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Session, Sliding, Tumbling
from tidemark.run.runner import correct, incremental
from tidemark.store.event_log.arrival import new_arrival_id
from tidemark.store.event_log.dead_letters import dead_letter
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.event_fates import (
    LEFT_OUT,
    NOT_RUN,
    NOT_YET,
    PLACED,
    Fate,
    WindowMembership,
    find_fates,
)
from tidemark.verify.traced_events import find_events


def below_9(rows: DataFrame) -> DataFrame:
    return rows.where("value < 9")


GATED = replace(PER_MINUTE, expectations=(q.between("most", max_value=5),))
PAIRS = rollup(of=GATED, name="pairs", window=Tumbling("2 minutes"))
BELOW_9 = replace(PER_MINUTE, name="below_9", function=below_9)
SESSIONS = replace(PER_MINUTE, name="sessions", window=Session("2 minutes"))
PANES = replace(
    PER_MINUTE,
    name="with_panes",
    trigger=Trigger(early=EachArrival()),
    accumulation="accumulating",
)
BY_TWO = replace(PER_MINUTE, name="by_two", trigger=Trigger(early=Count(2)))
ONCE = replace(
    PER_MINUTE,
    name="once",
    window=Tumbling("10 minutes"),
    deduplicate=Deduplicate("value", "1 hour"),
)
SOME = replace(PER_MINUTE, name="some")
NONE = replace(PER_MINUTE, name="none")
OVERLAPPING = replace(PER_MINUTE, name="overlapping", window=Sliding("2 minutes", "1 minute"))


def reading(minute: float, sensor: str, value: float = 1) -> Event:
    return Event(T0 + round(minute * MINUTE), sensor, value)


ARRIVALS = [
    [reading(0.2, "a")],
    [reading(1.5, "a")],
    [reading(3.5, "a", 9)],
    [reading(1.3, "a")],
    [reading(6.5, "b"), reading(6.52, "b"), reading(6.54, "b")],
    [reading(0.3, "a"), Event(None, "b", 1)],
]


@pytest.fixture(scope="module")
def log(shared: Warehouse) -> Warehouse:
    """Return a warehouse with the log and the tables of several assets."""
    ingest(shared, READINGS, ARRIVALS, ends=False)
    for transform in (GATED, PAIRS, BELOW_9, SESSIONS, PANES, BY_TWO, ONCE, OVERLAPPING):
        incremental(shared, transform)
    incremental(shared, SOME, last_arrival=2)
    return shared


def fates(log: Warehouse, which: str, *transforms: Definition) -> Sequence[Fate]:
    (event,) = find_events(log, READINGS, f"readings:{which}")
    return find_fates(log, transforms, event)


def place(log: Warehouse, which: str, transform: Definition) -> WindowMembership:
    """Return the only place of an event in an asset."""
    (fate,) = fates(log, which, transform)
    assert fate.state == PLACED
    (found,) = fate.places
    return found


def minute(found: WindowMembership) -> tuple[float, float]:
    assert found.start is not None
    assert found.end is not None
    return round((found.start - T0) / MINUTE, 2), round((found.end - T0) / MINUTE, 2)


def test_an_event_is_found_with_the_facts_of_its_arrival(log: Warehouse) -> None:
    (event,) = find_events(log, READINGS, "readings:3:0")
    assert (event.arrival.arrival, event.position, event.columns["sensor"]) == (3, 0, "a")
    assert event.arrival.before == T0 + round(2.5 * MINUTE)
    assert event.read_from == "memory"
    assert list(find_events(log, READINGS, "readings:3:1")) == []
    assert list(find_events(log, READINGS, "readings:3:0'")) == []
    assert list(find_events(log, replace(READINGS, name="never"), "readings:3:0")) == []


def test_a_dead_letter_is_found_with_its_reason(warehouse: Warehouse) -> None:
    (first,) = ingest(warehouse, READINGS, [[reading(0.2, "a")]], ends=False)
    log, follows = Log(warehouse, READINGS), first.arrival_id
    second = replace(
        first, arrival=1, rows=0, dead_letters=1, arrival_id=new_arrival_id(), follows=follows
    )
    rows = log.read_events(-1, 0).drop("correlation_id", "arrived_at", "watermark")
    log.take_over()
    dead = dead_letter(F.lit("not a number"), F.lit(b"x").cast("binary"))
    log.append_arrivals(
        rows.select(
            F.lit(1).cast("bigint").alias("arrival"),
            "position",
            "read_from",
            *(F.col(c) for c in READINGS.columns),
            dead,
        ),
        [second],
    )
    (found,) = find_events(warehouse, READINGS, "readings:1:0")
    assert (found.dead_letter, found.arrival.arrival, found.columns) == ("not a number", 1, {})
    assert find_fates(warehouse, [PER_MINUTE], found) == []
    (event,) = find_events(warehouse, READINGS, "readings:0:0")
    assert event.dead_letter is None


def test_an_on_time_event_is_in_base_and_roll_up(log: Warehouse) -> None:
    own, larger = fates(log, "0:0", PAIRS, GATED)
    assert (own.asset, larger.asset, larger.follows) == ("per_minute", "pairs", "per_minute")
    (mine,), (whole,) = own.places, larger.places
    assert (mine.verdict, mine.counts, mine.in_row, minute(mine)) == ("on_time", True, True, (0, 1))
    assert mine.row is not None
    assert (mine.row["n"], mine.row["final"], mine.keys) == (1, True, {"sensor": "a"})
    assert (whole.verdict, whole.in_row, minute(whole)) == ("on_time", True, (0, 2))


def test_a_late_event_is_in_the_row_that_it_revised(log: Warehouse) -> None:
    late = place(log, "3:0", GATED)
    assert (late.verdict, late.counts, late.in_row) == ("late", True, True)
    assert late.row is not None
    assert (late.row["n"], late.row["revision"], late.row["timing"]) == (2, 1, "LATE")


def test_a_quarantined_window_is_reported_with_its_reason(log: Warehouse) -> None:
    held = place(log, "2:0", GATED)
    assert (held.counts, held.in_row, held.row) == (True, False, None)
    assert held.quarantined is not None
    assert held.quarantined["failed_expectations"][0]["observed"] == "9"


@pytest.mark.nightly
@pytest.mark.slow
def test_an_event_that_the_function_drops_is_left_out(log: Warehouse) -> None:
    assert [f.state for f in fates(log, "2:0", BELOW_9)] == [LEFT_OUT]
    assert place(log, "0:0", BELOW_9).in_row


@pytest.mark.nightly
@pytest.mark.slow
def test_an_asset_that_has_not_read_the_event_says_so(log: Warehouse) -> None:
    assert [f.state for f in fates(log, "3:0", SOME, NONE)] == [NOT_YET, NOT_RUN]


def test_an_open_window_counts_the_event_without_a_row(log: Warehouse) -> None:
    waiting = place(log, "4:0", GATED)
    assert (waiting.verdict, waiting.counts, waiting.in_row) == ("on_time", True, False)
    assert (waiting.row, waiting.quarantined) == (None, None)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_event_awaiting_a_count_is_not_in_the_row(log: Warehouse) -> None:
    first, third = place(log, "4:0", BY_TWO), place(log, "4:2", BY_TWO)
    assert first.row is not None
    assert first.row == third.row
    assert first.row["events"] == 2
    assert (first.in_row, third.in_row, third.counts) == (True, False, True)


def test_an_events_session_is_the_merged_one(log: Warehouse) -> None:
    first, late = place(log, "0:0", SESSIONS), place(log, "3:0", SESSIONS)
    assert first.row == late.row
    assert first.row is not None
    assert (first.row["n"], first.in_row, late.in_row) == (4, True, True)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_events_panes_are_those_that_contain_it(log: Warehouse) -> None:
    early, late = place(log, "1:0", PANES), place(log, "3:0", PANES)
    told = [(p["pane"], p["timing"], p["n"]) for p in early.panes]
    assert told == [(0, "EARLY", 1), (1, "ON_TIME", 1), (2, "LATE", 2)]
    assert [(p["pane"], p["timing"]) for p in late.panes] == [(2, "LATE")]


@pytest.mark.nightly
@pytest.mark.slow
def test_every_sliding_window_of_an_event_is_reported(log: Warehouse) -> None:
    (fate,) = fates(log, "1:0", OVERLAPPING)
    assert sorted(map(minute, fate.places)) == [(0, 2), (1, 3)]
    assert all(p.in_row for p in fate.places)


def test_a_duplicate_is_reported_as_one(log: Warehouse) -> None:
    assert place(log, "0:0", ONCE).verdict == "on_time"
    again = place(log, "1:0", ONCE)
    assert (again.verdict, again.counts, again.in_row) == ("duplicate", False, False)


def test_an_event_without_a_time_is_in_the_late_table(log: Warehouse) -> None:
    found = place(log, "5:1", GATED)
    assert (found.verdict, found.start, found.counts) == ("no_event_time", None, False)
    assert found.late is not None
    assert found.late["reason"] == "no_event_time"


def test_a_too_late_event_counts_after_a_correction(log: Warehouse) -> None:
    own, larger = fates(log, "5:0", GATED, PAIRS)
    (missed,) = own.places
    assert (missed.verdict, missed.counts, missed.in_row) == ("too_late", False, False)
    assert missed.late is not None
    assert (missed.late["reason"], missed.late["lateness_seconds"]) == (
        "too_late",
        pytest.approx(314.4),
    )
    assert larger.state == LEFT_OUT
    correct(log, GATED)
    incremental(log, PAIRS)
    own, larger = fates(log, "5:0", GATED, PAIRS)
    (taken,), (whole,) = own.places, larger.places
    assert (taken.verdict, taken.counts, taken.in_row) == ("too_late", True, True)
    assert taken.row is not None
    assert taken.row["n"] == 2
    assert whole.in_row
    # An on-time event of the same window stays in its row.
    assert place(log, "0:0", GATED).in_row
