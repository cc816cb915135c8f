"""If none of many consecutive rows can be decoded, the source stops, whatever the reasons are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.landing import HEADER, SOURCE, connector, land, log_rows
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.arrival_facts import (
    MIN_UNDECODABLE_ROWS,
    Facts,
    UndecodableArrivalError,
    check_decodable,
)
from tidemark_streaming.ingest.ingest import ingest

CHANGED = Facts(dead_letters=MIN_UNDECODABLE_ROWS, reason="The field 'n' is not a valid INT.")
GOOD = Facts(rows=1, dead_letters=MIN_UNDECODABLE_ROWS)


def timeline(*dead_letters: int) -> list[Arrival]:
    """Return arrivals without events, with these numbers of dead letters."""
    return [
        Arrival(n, n, None, None, 0, None, None, 0, "{}", dead_letters=count)
        for n, count in enumerate(dead_letters)
    ]


@pytest.mark.parametrize(
    "facts",
    [
        replace(CHANGED, dead_letters=MIN_UNDECODABLE_ROWS - 1),
        replace(CHANGED, rows=1),
        Facts(rows=MIN_UNDECODABLE_ROWS),
        Facts(),
    ],
)
def test_some_dead_letters_do_not_stop_the_source(facts: Facts) -> None:
    check_decodable("clicks", {0: facts}, [])


@given(st.text(), st.booleans())
def test_many_dead_letters_stop_the_source_for_any_reason(reason: str, several: bool) -> None:
    facts = replace(CHANGED, reason=reason, has_several_reasons=several)
    with pytest.raises(UndecodableArrivalError) as caught:
        check_decodable("clicks", {0: facts}, [])
    assert reason.removesuffix(".") in str(caught.value)


def test_the_error_has_the_first_changed_arrival() -> None:
    with pytest.raises(
        UndecodableArrivalError,
        match=r"None of the next 100 rows of source 'clicks' can be decoded\. "
        r"The reason is: The field 'n' is not a valid INT\. The producers",
    ) as caught:
        check_decodable("clicks", {3: CHANGED, 1: GOOD, 2: CHANGED}, [])
    assert caught.value.before == 2


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40))
def test_the_rows_of_small_arrivals_are_counted_together(counts: Sequence[int]) -> None:
    """A followed stream has few rows in each arrival. Where commits begin makes no difference."""
    facts = [replace(CHANGED, dead_letters=count) for count in counts]
    total, first = 0, None
    for index, count in enumerate(counts):
        total += count
        if first is None and count and total >= MIN_UNDECODABLE_ROWS:
            first = index
    for begin in range(len(counts) if first is None else first + 1):
        remaining = dict(enumerate(facts[begin:]))
        if first is None:
            check_decodable("clicks", remaining, timeline(*counts[:begin]))
            continue
        with pytest.raises(UndecodableArrivalError) as caught:
            check_decodable("clicks", remaining, timeline(*counts[:begin]))
        assert caught.value.before == first - begin


def test_accepted_rows_and_rows_before_an_event_are_not_counted() -> None:
    few = {0: replace(CHANGED, dead_letters=10)}
    check_decodable("clicks", few, timeline(60, 60))
    check_decodable("clicks", few, timeline(200, 60))
    with pytest.raises(UndecodableArrivalError, match="the next 100 rows"):
        check_decodable("clicks", few, timeline(200, 60, 0, 30))
    check_decodable("clicks", few, [*timeline(60), replace(timeline(30)[0], rows=1)])
    check_decodable("clicks", {0: replace(CHANGED, dead_letters=60), 1: GOOD, 2: few[0]}, [])


def test_a_file_that_can_not_be_decoded_waits_until_accepted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    land(tmp_path, "0.csv", HEADER + "2023-11-14,a,1\n", 0)
    land(tmp_path, "1.csv", HEADER + "2023-11-14,a,x\n2023-11-14,a\n" * MIN_UNDECODABLE_ROWS, 1)
    files = connector(tmp_path)
    with pytest.raises(
        UndecodableArrivalError,
        match="One of several reasons is: The field 'value' is not a valid INT",
    ):
        list(ingest(warehouse, files, batch=None))
    assert len(log_rows(warehouse)) == 1
    (commit,) = ingest(warehouse, replace(files, accept_change=True))
    assert commit.arrivals[0].dead_letters == 2 * MIN_UNDECODABLE_ROWS
    assert warehouse.take(SOURCE.dead_letters_table).num_rows == 2 * MIN_UNDECODABLE_ROWS
