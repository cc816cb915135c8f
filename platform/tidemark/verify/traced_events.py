"""Find an event in event logs and dead letters, and what it was computed from.

An event is found in the event log by its correlation id. A row of a derived source is traced back
to the events of its bases, and an event to the rows of the sources that are derived from its
source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark.compute.derived.base_rows import origin_text, parse_origins
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tables import TableName
from tidemark.store.commits.conditions import Condition, Equals, less_than, number_is
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.rows import to_display
from tidemark.store.warehouse import Warehouse

_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """An event as stored in the event log, or a dead letter.

    Args:
        arrival: the arrival that contains the event. The arrival's `before` is the watermark by
            which the event's lateness is classified.
        position: the position of the event in its arrival, which is unique there.
        read_from: the origin of the event: a file and line, or a topic, partition and offset.
        dead_letter: the reason why the record could not be decoded; None for an event.
        columns: the source's own columns; empty for a dead letter.
        origins: for a row of a derived source, the events from which the row was computed.
    """

    source: str
    correlation_id: str
    arrival: Arrival
    position: int
    read_from: str | None
    dead_letter: str | None
    columns: _Row
    origins: Sequence["Event"] = ()

    @property
    def identity(self) -> tuple[str, int, int, bool]:
        """The identity of the event: source, arrival, position, and whether it is in the event log.

        The last item is False for a dead letter.
        """
        return self.source, self.arrival.arrival, self.position, self.dead_letter is None


def find_events(warehouse: Warehouse, source: Source, correlation_id: str) -> Iterator[Event]:
    """Yield the events and dead letters of a source with a correlation id, in order of arrival.

    Only the columns `arrival` and `correlation_id` of both tables are searched. All columns are
    then read only for arrivals with a match.
    """
    named = Equals("correlation_id", correlation_id)
    yield from _find_rows(warehouse, source, [named], [named])


def find_derived(warehouse: Warehouse, source: DerivedSource, event: Event) -> Iterator[Event]:
    """Yield the rows of a derived source that were computed from an event, in order of arrival.

    If the derived source refused the event, yield the dead letter that it wrote, with the reason.
    """
    arrival = event.arrival.arrival
    position = event.position
    for base, lineage in zip(source.base_sources, source.derivation.lineage_columns, strict=False):
        if base.name != event.source:
            continue
        bounds: list[Condition] = [
            number_is(lineage.arrival, arrival),
            number_is(lineage.position, position),
        ]
        bounds += [Equals(name, value) for name, value in lineage.only.items()]
        text = origin_text(event.source, arrival, position)
        yield from _find_rows(warehouse, source, bounds, [Equals("read_from", text)])


def add_origins(warehouse: Warehouse, source: Source, event: Event) -> Event:
    if not isinstance(source, DerivedSource):
        return event
    bases = {base.name: base for base in source.base_sources}
    origins = list[Event]()
    for name, arrival, position in _find_places(source, event):
        conditions = [number_is("arrival", arrival), number_is("position", position)]
        for origin in _find_rows(warehouse, bases[name], conditions, None):
            origins.append(add_origins(warehouse, bases[name], origin))
    return replace(event, origins=origins)


def _find_places(source: DerivedSource, event: Event) -> Iterator[tuple[str, int, int]]:
    """Yield the base, the arrival and the position of each event from which a row was computed."""
    if event.dead_letter is not None:
        yield from parse_origins(event.read_from or "")
        return
    row = event.columns
    for base, lineage in zip(source.base_sources, source.derivation.lineage_columns, strict=False):
        is_own = all(row[name] == value for name, value in lineage.only.items())
        if is_own and row[lineage.arrival] is not None:
            yield base.name, row[lineage.arrival], row[lineage.position]


def _find_rows(
    warehouse: Warehouse,
    source: Source,
    of_events: Sequence[Condition],
    of_letters: Sequence[Condition] | None,
) -> Iterator[Event]:
    """Yield the events and dead letters of a source that meet conditions, in order of arrival.

    The columns of the conditions are read first, and all columns only for arrivals with a match.

    Args:
        of_events: the conditions on rows of the event log.
        of_letters: the conditions on dead letters; None to search no dead letters.
    """
    if not warehouse.has_table(source.timeline_table):
        return
    log = Log(warehouse, source)
    last = log.find_last_arrival()
    if last is None:
        return
    is_published = less_than("arrival", last.arrival + 1)
    conditions = {source.log_table: of_events}
    if of_letters is not None:
        conditions[source.dead_letters_table] = of_letters
    matches: set[tuple[int, TableName]] = set()
    for table, bounds in conditions.items():
        if warehouse.has_table(table):
            rows = warehouse.load_rows(table, is_published, *bounds, columns=["arrival"])
            matches |= {(number, table) for number in rows["arrival"].to_pylist()}
    for number, table in sorted(matches):
        (arrival,) = log.read_timeline(number - 1, number)
        of_arrival = number_is("arrival", number)
        rows = warehouse.load_rows(table, of_arrival, *conditions[table])
        for row in to_display(rows.sort_by("position")):
            yield _to_event(source, arrival, row, is_dead_letter=table != source.log_table)


def _to_event(source: Source, arrival: Arrival, row: _Row, *, is_dead_letter: bool) -> Event:
    event = Event(
        source=source.name,
        correlation_id=row["correlation_id"],
        arrival=arrival,
        position=row["position"],
        read_from=row["read_from"],
        dead_letter=None,
        columns={},
    )
    if is_dead_letter:
        return replace(event, dead_letter=row["reason"])
    return replace(event, columns={name: row.get(name) for name in source.columns})
