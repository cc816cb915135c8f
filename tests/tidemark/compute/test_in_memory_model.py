"""Tests that windows computed in memory equal the oracle, for histories from Hypothesis."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.support import PER_MINUTE, same
from helpers.model.oracle import simulate
from tidemark.base.instants import INFINITY, as_datetime, format_instant, parse_instant
from tidemark.compute import in_memory
from tidemark.define import aggregates as agg
from tidemark.define.classification import LATE, ON_TIME, TOO_LATE
from tidemark.define.helper_columns import ADMITTED, IS_DELETED, SLOT, VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.firings import EachArrival, Firing, Never
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Tumbling
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.kinds import Cause, Increment, Replacement
from tidemark.store.rows import INSTANT

SECOND = 1_000_000
SIZE, BOUND = 10, 5
Side = tuple[Firing, dict[str, Any]]
"""A firing of a trigger, and the same as the oracle has it."""

FIRINGS: tuple[Side, ...] = (
    (Never(), {"never": {}}),
    (EachArrival(), {"arrival": {}}),
)


class Event(NamedTuple):
    """An event with its time in seconds."""

    at: int
    key: str | None
    value: float | None


class Arrival(NamedTuple):
    """Events, or a watermark in seconds."""

    events: list[Event]
    watermark: int


EVENTS = st.builds(
    Event,
    st.integers(0, 40),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0.5, -1.25, 3.0, None]),
)
ARRIVALS = st.builds(Arrival, st.lists(EVENTS, max_size=4), st.integers(0, 60))
PARTIALS = pa.schema(
    {
        "window_start": INSTANT,
        "window_end": INSTANT,
        "sensor": pa.string(),
        VERDICT: pa.int8(),
        ADMITTED: pa.bool_(),
        SLOT: pa.int64(),
        "events": pa.int64(),
        "last_arrival": pa.int64(),
        "n": pa.int64(),
        "total": pa.struct(
            {
                "sum": pa.float64(),
                "count": pa.int64(),
                "plus": pa.float64(),
                "minus": pa.float64(),
                "over": pa.bool_(),
            }
        ),
        "average": pa.struct(
            {
                **dict.fromkeys(("sum", "plus", "like"), pa.float64()),
                **dict.fromkeys(("high", "low"), pa.decimal128(38, 0)),
                "count": pa.int64(),
            }
        ),
        "least": pa.float64(),
        "most": pa.float64(),
    }
)
AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("value"),
    "average": agg.mean("value"),
    "least": agg.min("value"),
    "most": agg.max("value"),
}


def watermarks(history: list[Arrival]) -> list[int | None]:
    """Return the watermark before the first arrival and after each, in microseconds."""
    found: list[int | None] = [None]
    newest = 0
    for arrival in history:
        newest = max([newest, *(e.at for e in arrival.events)])
        reached = newest - BOUND if arrival.events else arrival.watermark
        before = found[-1]
        found.append(reached * SECOND if before is None else max(before, reached * SECOND))
    return found


def partials(history: list[Arrival], trigger: Trigger, lateness: int) -> Iterator[dict[str, Any]]:
    """Yield the partials of each event."""
    marks = watermarks(history)
    for number, arrival in enumerate(history):
        for event in arrival.events:
            start = event.at // SIZE * SIZE * SECOND
            end, before, after = start + SIZE * SECOND, marks[number], marks[number + 1]
            lag = -1 if before is None else before - end
            verdict = ON_TIME if lag < 0 else LATE if lag < lateness * SECOND else TOO_LATE
            firing = trigger.early if verdict == ON_TIME else trigger.late
            closes = verdict == ON_TIME and after is not None and after >= end
            value, size = event.value, None if event.value is None else abs(event.value)
            total = {"sum": value, "count": int(value is not None), "plus": size}
            yield {
                "window_start": start,
                "window_end": end,
                "sensor": event.key,
                VERDICT: verdict,
                ADMITTED: verdict != TOO_LATE,
                SLOT: number + 1 if firing.by_arrival and not closes else 0,
                "events": 1,
                "last_arrival": number,
                "n": 1,
                "total": {**total, "minus": None, "over": False},
                "average": {**total, "like": None, "high": None, "low": None},
                "least": value,
                "most": value,
            }


def expected(
    history: list[Arrival],
    early: Side,
    late: Side,
    lateness: int,
    ends: bool,
) -> list[dict[str, Any]]:
    """Return the rows that the oracle publishes."""

    def item(arrival: Arrival) -> dict[str, Any]:
        rows = [
            {"t": as_datetime(e.at * SECOND), "sensor": e.key, "value": e.value}
            for e in arrival.events
        ]
        return {"rows": rows} if rows else {"watermark": as_datetime(arrival.watermark * SECOND)}

    return simulate(
        {
            "name": "in memory",
            "source": {
                "event_time": "t",
                "columns": {"t": "timestamp", "sensor": "string", "value": "double"},
                "watermark": {"bounded_out_of_orderness": f"{BOUND} seconds"},
            },
            "transform": {
                "window": {"tumbling": {"size": f"{SIZE} seconds"}},
                "keys": ["sensor"],
                "allowed_lateness": f"{lateness} seconds",
                "trigger": {"early": early[1], "late": late[1]},
                "aggregates": {
                    "n": "count",
                    "total": {"sum": "value"},
                    "average": {"avg": "value"},
                    "least": {"min": "value"},
                    "most": {"max": "value"},
                },
            },
            "arrivals": [item(arrival) for arrival in history],
            "open": not ends,
        }
    )["windows"]


def make_transform(early: Side, late: Side, lateness: int) -> WindowedTransform:
    return replace(
        PER_MINUTE,
        window=Tumbling(f"{SIZE} seconds"),
        allowed_lateness=lateness * SECOND,
        trigger=Trigger(early[0], late[0]),
        aggregates=AGGREGATES,
        function=same,
    )


def by_window(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {(row["window_start"], row["sensor"]): row for row in rows}


def told(rows: pa.Table, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the columns of rows that the oracle has, in the form in which it has them."""
    found: list[dict[str, Any]] = []
    for row in rows.to_pylist():
        bounds = {
            name: format_instant(parse_instant(row[name]))
            for name in names
            if name.startswith("window_")
        }
        found.append({name: row[name] for name in names} | bounds)
    return found


@given(
    st.lists(ARRIVALS, min_size=1, max_size=8),
    st.integers(0, 8),
    st.sampled_from(FIRINGS),
    st.sampled_from(FIRINGS),
    st.integers(0, 30),
    st.booleans(),
)
def test_an_increment_changes_the_oracles_earlier_rows_into_its_later_rows(
    history: list[Arrival], cut: int, early: Side, late: Side, lateness: int, ends: bool
) -> None:
    transform = make_transform(early, late, lateness)
    cut = min(cut, len(history))
    marks = watermarks(history)
    through = INFINITY if ends else marks[-1]
    marker = Increment(
        commit_number=3,
        before=Coverage(TimelinePosition(cut - 1, marks[cut])),
        after=Coverage(TimelinePosition(len(history) - 1, through)),
    )
    assert in_memory.is_supported(transform, marker)
    stored = list(partials(history, transform.trigger, lateness))
    rows = pa.Table.from_pylist(stored, schema=PARTIALS)
    changes = in_memory.compute_changes(rows, transform, marker)
    assert changes is not None
    assert in_memory.changes_nothing(rows, transform, marker) == (changes.num_rows == 0)
    before = by_window(expected(history[:cut], early, late, lateness, ends=False))
    after = by_window(expected(history, early, late, lateness, ends))
    names = next(iter(after.values()), {}).keys()
    stamps = changes.select([IS_DELETED, "as_of", "commit_number"]).to_pylist()
    stamp = {IS_DELETED: False, "as_of": len(history) - 1, "commit_number": 3}
    assert stamps == [stamp] * changes.num_rows
    changed = told(changes, names)
    assert before | by_window(changed) == after
    # No row is written again that stays as it is.
    same_rows = [key for key, row in by_window(changed).items() if before.get(key) == row]
    assert same_rows == []


@given(
    st.lists(ARRIVALS, min_size=1, max_size=8),
    st.sampled_from(FIRINGS),
    st.sampled_from(FIRINGS),
    st.integers(0, 30),
    st.booleans(),
)
def test_a_replacement_has_all_of_the_oracles_rows(
    history: list[Arrival], early: Side, late: Side, lateness: int, ends: bool
) -> None:
    transform = make_transform(early, late, lateness)
    at = TimelinePosition(len(history) - 1, INFINITY if ends else watermarks(history)[-1])
    # The position before a replacement makes no difference: all windows are recomputed.
    marker = Replacement(
        cause=Cause.BACKFILL, commit_number=3, before=Coverage(at), after=Coverage(at)
    )
    assert in_memory.is_supported(transform, marker)
    stored = list(partials(history, transform.trigger, lateness))
    rows = in_memory.compute_changes(
        pa.Table.from_pylist(stored, schema=PARTIALS), transform, marker
    )
    assert rows is not None
    oracles = expected(history, early, late, lateness, ends)
    names = oracles[0].keys() if oracles else ()
    assert by_window(told(rows, names)) == by_window(oracles)
