"""If none of many consecutive rows can be decoded, or no row of an arrival has an event time, the
source stops, whatever the reasons are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.landing import HEADER, SOURCE, connector, land, log_rows
from tidemark.define.watermarks import Punctuated
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.ingest.unusable_arrivals import (
    MIN_UNUSABLE_ROWS,
    UnusableArrivalError,
    check_decodable,
    check_event_times,
)

CHANGED = ChunkSummary(dead_letters=MIN_UNUSABLE_ROWS, reason="The field 'n' is not a valid INT.")
GOOD = ChunkSummary(rows=1, dead_letters=MIN_UNUSABLE_ROWS)


def timeline(*dead_letters: int) -> list[Arrival]:
    """Return arrivals without events, with these numbers of dead letters."""
    return [
        Arrival(n, n, None, None, 0, None, None, 0, "{}", dead_letters=count)
        for n, count in enumerate(dead_letters)
    ]


@pytest.mark.parametrize(
    "facts",
    [
        replace(CHANGED, dead_letters=MIN_UNUSABLE_ROWS - 1),
        replace(CHANGED, rows=1),
        ChunkSummary(rows=MIN_UNUSABLE_ROWS),
        ChunkSummary(),
    ],
)
def test_some_dead_letters_do_not_stop_the_source(facts: ChunkSummary) -> None:
    check_decodable("clicks", {0: facts}, [])


@given(st.text(), st.booleans())
def test_many_dead_letters_stop_the_source_for_any_reason(reason: str, several: bool) -> None:
    facts = replace(CHANGED, reason=reason, has_several_reasons=several)
    with pytest.raises(UnusableArrivalError) as caught:
        check_decodable("clicks", {0: facts}, [])
    assert reason.removesuffix(".") in str(caught.value)


def test_the_error_has_the_first_changed_arrival() -> None:
    with pytest.raises(
        UnusableArrivalError,
        match=r"None of the next 100 rows of source 'clicks' can be decoded\. "
        r"The reason is: The field 'n' is not a valid INT\. The producers",
    ) as caught:
        check_decodable("clicks", {3: CHANGED, 1: GOOD, 2: CHANGED}, [])
    assert caught.value.arrivals_before == 2


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40))
def test_the_rows_of_small_arrivals_are_counted_together(counts: Sequence[int]) -> None:
    """A followed stream has few rows in each arrival. Where commits begin makes no difference."""
    facts = [replace(CHANGED, dead_letters=count) for count in counts]
    total, first = 0, None
    for index, count in enumerate(counts):
        total += count
        if first is None and count and total >= MIN_UNUSABLE_ROWS:
            first = index
    for begin in range(len(counts) if first is None else first + 1):
        remaining = dict(enumerate(facts[begin:]))
        if first is None:
            check_decodable("clicks", remaining, timeline(*counts[:begin]))
            continue
        with pytest.raises(UnusableArrivalError) as caught:
            check_decodable("clicks", remaining, timeline(*counts[:begin]))
        assert caught.value.arrivals_before == first - begin


def test_accepted_rows_and_rows_before_an_event_are_not_counted() -> None:
    few = {0: replace(CHANGED, dead_letters=10)}
    check_decodable("clicks", few, timeline(60, 60))
    check_decodable("clicks", few, timeline(200, 60))
    with pytest.raises(UnusableArrivalError, match="the next 100 rows"):
        check_decodable("clicks", few, timeline(200, 60, 0, 30))
    check_decodable("clicks", few, [*timeline(60), replace(timeline(30)[0], rows=1)])
    check_decodable("clicks", {0: replace(CHANGED, dead_letters=60), 1: GOOD, 2: few[0]}, [])


UNTIMED = ChunkSummary(rows=3)
TIMED = ChunkSummary(rows=1, min_event_time=0, max_event_time=0)
FUTURE = ChunkSummary(rows=1, future_timestamps=1)


def check_times(
    facts: Sequence[ChunkSummary], before: Sequence[Arrival] = (), *, uniform: bool = False
) -> None:
    check_event_times(SOURCE, dict(enumerate(facts)), before, must_have_event_times=uniform)


MISSPELLED = replace(UNTIMED, undeclared=("At", "K"))


@pytest.mark.parametrize(("untimed", "uniform"), [(UNTIMED, True), (MISSPELLED, False)])
def test_first_events_without_an_event_time_stop_the_source(
    untimed: ChunkSummary, uniform: bool
) -> None:
    message = r"None of the 3 events of .* 'sensors' has an event time: the field 'at' is missing"
    with pytest.raises(UnusableArrivalError, match=message) as caught:
        check_times([ChunkSummary(), untimed, TIMED], uniform=uniform)
    assert caught.value.arrivals_before == 1
    assert ("the undeclared fields are At, K. The" in str(caught.value)) == (untimed is MISSPELLED)


def test_tombstones_and_later_records_with_new_fields_do_not_stop_the_source() -> None:
    check_times([UNTIMED])
    check_times([TIMED, MISSPELLED])
    check_times([MISSPELLED], [replace(timeline(0)[0], rows=1)])


@pytest.mark.parametrize("usable", [TIMED, FUTURE])
def test_later_files_without_an_event_time_stop_the_source(usable: ChunkSummary) -> None:
    with pytest.raises(UnusableArrivalError, match="None of the 3 events"):
        check_times([usable, UNTIMED], uniform=True)
    check_times([usable, UNTIMED])
    check_times([usable, ChunkSummary(dead_letters=1), usable], uniform=True)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=10), st.integers(0, 9))
def test_later_events_without_an_event_time_stop_the_source_if_they_are_many(
    counts: Sequence[int], begin: int
) -> None:
    """Where commits begin makes no difference."""
    first_arrivals = [replace(timeline(0)[0], rows=1, min_event_time=0)]
    earlier = [replace(a, rows=n) for a, n in zip(timeline(*counts), counts, strict=True)][:begin]
    stop = next((n for n in range(len(counts)) if sum(counts[: n + 1]) >= MIN_UNUSABLE_ROWS), None)
    facts = [ChunkSummary(rows=count) for count in counts[begin:]]
    if stop is None or begin > stop:
        check_times(facts if stop is None else [], first_arrivals + earlier)
        return
    with pytest.raises(UnusableArrivalError) as caught:
        check_times(facts, first_arrivals + earlier)
    assert caught.value.arrivals_before == stop - begin


def test_a_json_file_without_event_times_waits_until_accepted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """C# writes `At` for `at`. The fields of JSON are case-sensitive."""
    land(tmp_path, "1.json", '{"At": "2023-11-14", "value": 1}\n' * 2, 1)
    files = replace(connector(tmp_path), format="json", options={})
    with pytest.raises(UnusableArrivalError, match=r"None of the 2 events .*case-sensitive"):
        list(ingest(warehouse, files))
    (commit,) = ingest(warehouse, replace(files, accept_change=True))
    assert commit.arrivals[0].rows == len(log_rows(warehouse)) == 2


def test_rows_that_announce_the_watermark_need_no_event_time() -> None:
    announced = replace(SOURCE, watermark=Punctuated("CASE WHEN sensor = 'end' THEN at END"))
    check_event_times(announced, {0: MISSPELLED}, [], must_have_event_times=True)


def test_a_file_that_can_not_be_decoded_waits_until_accepted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    land(tmp_path, "0.csv", HEADER + "2023-11-14,a,1\n", 0)
    land(tmp_path, "1.csv", HEADER + "2023-11-14,a,x\n2023-11-14,a\n" * MIN_UNUSABLE_ROWS, 1)
    files = connector(tmp_path)
    with pytest.raises(
        UnusableArrivalError,
        match="One of several reasons is: The field 'value' is not a valid INT",
    ):
        list(ingest(warehouse, files, batch=None))
    assert len(log_rows(warehouse)) == 1
    (commit,) = ingest(warehouse, replace(files, accept_change=True))
    assert commit.arrivals[0].dead_letters == 2 * MIN_UNUSABLE_ROWS
    assert warehouse.load_rows(SOURCE.dead_letters_table).num_rows == 2 * MIN_UNUSABLE_ROWS
