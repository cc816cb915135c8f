"""Read the events of a source, without the engine, for `tidemark show`, `tap` and `trace`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.store.commits.conditions import Equals, at_least, less_than, number_is
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import to_display
from tidemark_streaming.snapshot.tables import Tables

_PLACE = ("arrival", "position")


@dataclass(frozen=True)
class SourceStep:
    """A choice of `tidemark tap`: which rows of an arrival to show, for example its dead letters.

    Args:
        name: the name of the choice in the command.
        meaning: a description of the rows, for the command's list of choices.
        table: a function of a source and one of its arrivals. It returns the name of the table that
            has the rows, and the value of the column `arrival` in these rows.
    """

    name: str
    meaning: str
    table: Callable[[Source, Arrival], tuple[str, int]]


def _taken_rows(source: Source, arrival: Arrival) -> tuple[str, int]:
    assert isinstance(source, DerivedSource)
    step = Step.of_position(arrival.position)
    bases = {base.name: base for base in source.base_sources}
    return bases[step.base].log_table, step.taken_arrival


_EVENTS = SourceStep(
    "events",
    "events that the arrival wrote to the event log",
    lambda source, arrival: (source.log_table, arrival.arrival),
)
_DEAD_LETTERS = SourceStep(
    "dead_letters",
    "records that could not be decoded, with the reason",
    lambda source, arrival: (source.dead_letters_table, arrival.arrival),
)
_TAKEN = SourceStep(
    "taken", "events of the base's arrival from which the arrival was computed", _taken_rows
)
_UNJOINED = SourceStep(
    "unjoined",
    "rows of the bases that take no part, with the reason",
    lambda source, arrival: (source.dead_letters_table, arrival.arrival),
)


def list_source_steps(source: Source) -> list[SourceStep]:
    """Return the choices for the arrivals of a source."""
    derived = isinstance(source, DerivedSource)
    if derived:
        return [_TAKEN, _EVENTS, _UNJOINED]
    return [_EVENTS, _DEAD_LETTERS]


def find_source_step(source: Source, name: str) -> SourceStep:
    steps = {step.name: step for step in list_source_steps(source)}
    if name not in steps:
        raise DefinitionError(
            f"Arrivals of '{source.name}' have no step '{name}'. Their steps are "
            f"{', '.join(steps)}."
        )
    return steps[name]


def read_step(
    tables: Tables, source: Source, step: SourceStep, arrival: Arrival, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first rows of a step in an arrival, and whether there are more."""
    table, number = step.table(source, arrival)
    rows = tables.read(table, bounds=[number_is("arrival", number)])
    if rows is None:
        return [], False
    ordered = rows.sort_by("position")
    return to_display(ordered.slice(0, limit)), ordered.num_rows > limit


def find_arrival(tables: Tables, source: Source, number: int | None) -> Arrival:
    """Return an arrival of a source; the newest one if `number` is None."""
    later = arrivals_after(tables, source, -1 if number is None else number - 1)
    for arrival in reversed(later):
        if number is None or arrival.arrival == number:
            return arrival
    if number is None:
        raise DataError(
            f"'{source.name}' has no arrivals yet: `tidemark ingest {source.name}` adds them."
        )
    raise DataError(
        f"'{source.name}' has no arrival {number}: omit --arrival for its newest arrival."
    )


def arrivals_after(tables: Tables, source: Source, number: int) -> list[Arrival]:
    rows = tables.read(source.timeline_table, bounds=[at_least("arrival", number + 1)])
    if rows is None:
        return []
    return read_arrivals(rows)


def newest_rows(
    tables: Tables, source: Source, table: str, where: ds.Expression | None, limit: int
) -> pa.Table | None:
    """Return the newest rows of a source's event log or dead letters; None if it has none yet.

    Rows of an arrival that is not in the timeline are not committed, and left out.
    """
    arrivals = tables.read(source.timeline_table, ["arrival"])
    if arrivals is None or not arrivals.num_rows:
        return None
    has_arrived = less_than("arrival", max(arrivals["arrival"].to_pylist()) + 1).to_expression()
    return tables.read_newest(
        table, "arrival", has_arrived if where is None else has_arrived & where, limit, ["position"]
    )


def has_correlation_id(tables: Tables, sources: Sequence[Source], correlation_id: str) -> bool:
    """Return whether an event or a dead letter of one of the sources has a correlation id."""
    has_id = Equals("correlation_id", correlation_id)
    for source in sources:
        for table in (source.log_table, source.dead_letters_table):
            rows = tables.read(table, ["arrival"], bounds=[has_id])
            if rows is not None and rows.num_rows > 0:
                return True
    return False
