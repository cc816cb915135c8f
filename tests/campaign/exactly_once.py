"""Checks that tables and topic counted each numbered event exactly once and are intact.

Plain Python computes the expected values from the rows of the event log and their watermarks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.data.whole import damaged
from helpers.kafka.rebuilt import Table, records
from numbered.sources import numbers
from numbered.transforms import numbers_counted
from stress import faults
from tidemark.base.instants import parse_instant
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.sink.writer import topic_of

SECOND = 1_000_000
WINDOW, LATENESS = 10 * SECOND, 10 * SECOND

Place = tuple[int, int]
"""A window: its start in microseconds and its shard."""


Row = Mapping[str, Any]


def wrong(warehouse: Warehouse, servers: str, sent: int, poison: int) -> Iterator[str]:
    """Yield a message for each fault that is found after the end of the source.

    Args:
        servers: the broker.
        sent: the number of events, which are numbered from 0.
        poison: the number of undecodable records, numbered as well.
    """
    letters = warehouse.load_rows(numbers.dead_letters_table, columns=["bytes"]).to_pylist()
    events = warehouse.load_rows(numbers.log_table, columns=["at", "n", "watermark"]).to_pylist()
    yield from miscounted("poison records", [r["bytes"] for r in letters], poisons(poison))
    yield from miscounted("events in the log", [r["n"] for r in events], range(sent))
    missed = warehouse.load_rows(numbers_counted.late_table, columns=["n"]).to_pylist()
    too_late = [r["n"] for r in events if _too_late(r)]
    yield from miscounted("events that are too late", [r["n"] for r in missed], too_late)

    expected = windows(events)
    published = warehouse.load_rows(numbers_counted.published_table).to_pylist()
    places = [(parse_instant(r["window_start"]), r["shard"]) for r in published]
    yield from miscounted("windows", places, expected)
    told = {p: (r["counted"], r["total"]) for p, r in zip(places, published, strict=True)}
    yield from differing("The published table", told, expected)
    if not all(r["final"] for r in published):
        yield "Not every window is final."
    table = Table("accumulating")
    for record in records(servers, topic_of(numbers_counted).name):
        table.take(*record)
    yield from differing("Who reads the topic", dict(_told(table)), expected)

    yield from faults(warehouse, [numbers_counted], ())
    for path in sorted(Path(warehouse.location, warehouse.database).iterdir()):
        if (path / "_delta_log").is_dir():
            yield from damaged(path)


def poisons(count: int) -> list[bytes]:
    """Return the undecodable records."""
    return [f"poison {n}".encode() for n in range(count)]


def miscounted(what: str, found: Iterable[object], expected: Iterable[object]) -> Iterator[str]:
    """Yield messages for missing and for surplus items."""
    there, wanted = Counter(iter(found)), Counter(iter(expected))
    lost, more = wanted - there, there - wanted
    if lost:
        yield f"Of {wanted.total()} {what} {lost.total()} are lost, such as {min(lost, key=str)}."
    if more:
        yield f"Of {wanted.total()} {what} {more.total()} too many are there, such as " + (
            f"{min(more, key=str)}."
        )


def windows(events: Iterable[Row]) -> dict[Place, tuple[int, int]]:
    """Return the number of events and the sum of their numbers by window."""
    found: dict[Place, tuple[int, int]] = {}
    for event in events:
        if not _too_late(event):
            counted, total = found.get(_place(event), (0, 0))
            found[_place(event)] = (counted + 1, total + event["n"])
    return found


def differing(
    who: str, found: Mapping[Place, tuple[int, int]], expected: Mapping[Place, tuple[int, int]]
) -> Iterator[str]:
    """Yield a message if windows differ from the expected ones."""
    odd = sorted(p for p in {*found, *expected} if found.get(p) != expected.get(p))
    if odd:
        yield (
            f"{who} has {len(odd)} windows that are wrong, such as {odd[0]}: count and sum are "
            f"{found.get(odd[0])} instead of {expected.get(odd[0])}."
        )


def _too_late(event: Mapping[str, Any]) -> bool:
    """Return whether the event's window was final when the event arrived."""
    mark = event["watermark"]
    return mark is not None and _place(event)[0] + WINDOW + LATENESS <= parse_instant(mark)


def _place(event: Mapping[str, Any]) -> Place:
    at = parse_instant(event["at"])
    return at - at % WINDOW, event["n"] % 3


def _told(table: Table) -> Iterator[tuple[Place, tuple[int, int]]]:
    for (start, _, shard), told in table.rows.items():
        yield (parse_instant(start), shard), (told["values"]["counted"], told["values"]["total"])
