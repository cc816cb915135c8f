"""The arrivals of a scenario's sources with their watermarks, computed in plain Python.

An arrival of a derived source corresponds to an arrival of one of its bases. Only its events are
not computed here, but taken from the result of running the scenario.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import (
    EARLIEST,
    INFINITY,
    LATEST,
    latest_watermark,
    parse_duration,
    parse_instant,
)
from tidemark.define import watermarks
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.progress import Progress
from tidemark.define.source import Source
from tidemark.define.watermarks import Punctuated, after_heartbeat
from tidemark_streaming.scenario.read.parse import Scenario, ScenarioArrival

_WITHOUT_ENGINE = (
    watermarks.BoundedOutOfOrderness,
    watermarks.MonotonicTimestamps,
    watermarks.PerPartition,
    watermarks.Perfect,
    watermarks.Manual,
)
"""The watermark strategies that depend only on event times, or on no rows at all."""


@dataclass(frozen=True)
class Step:
    """An arrival to draw, with the watermark before and after it.

    Args:
        number: the number of the arrival in its source, from 0.
        before, after: the watermarks in microseconds; None is minus infinity.
        taken: for an arrival of a derived source, the corresponding arrival of a base; None for
            other sources.
    """

    number: int
    arrival: ScenarioArrival
    before: int | None
    after: int | None
    taken: "Step | None" = None


def event_logs(scenario: Scenario, result: Mapping[str, Any]) -> dict[str, list[Step]]:
    """Return the arrivals of all sources, by source name."""
    logs = {name: list_steps(scenario, source) for name, source in scenario.sources.items()}
    for name, source in scenario.derived.items():
        bases = {base.name: logs[base.name] for base in source.base_sources}
        logs[name] = list(_derived_steps(source, bases, result["derived"][name]))
    return logs


def list_steps(scenario: Scenario, source: Source) -> list[Step]:
    """Return the arrivals of a source that is not derived.

    If `is_known_watermark` is false for the source, rows do not advance the watermark.
    """
    source_steps: list[Step] = []
    watermark = None
    state = None
    for number, arrival in enumerate(scenario.arrivals_of(source)):
        before = watermark
        if arrival.ends:
            watermark = INFINITY
        else:
            observed = _observe_newest(source, arrival) if is_known_watermark(source) else None
            watermark, state = source.watermark.advance(
                state, before, observed, arrival.clock, arrival.watermark
            )
            if arrival.silent_since is not None:
                watermark = after_heartbeat(
                    source.watermark, watermark, arrival.clock, arrival.silent_since
                )
        source_steps.append(Step(number, arrival, before, watermark))
    return source_steps


def _derived_steps(
    source: DerivedSource, bases: Mapping[str, Sequence[Step]], rows: Iterable[Mapping[str, Any]]
) -> Iterator[Step]:
    """Yield the arrivals of a derived source: those of its bases, in the order it takes them."""
    events = dict[int, list[tuple[Any, ...]]]()
    for row in rows:
        values = [_parse_value(row[column], ddl) for column, ddl in source.columns.items()]
        events.setdefault(row["arrival"], []).append(tuple(values))
    order = list(bases)
    waiting = list[Step]()
    for base_steps in bases.values():
        waiting += base_steps
    # Arrivals at the same clock are taken in the order of the bases, as the engine takes them.
    waiting.sort(key=lambda s: (s.arrival.clock, order.index(s.arrival.source), s.number))
    progress = Progress(source)
    before = None
    newest_data = None
    for number, taken in enumerate(waiting):
        base = taken.arrival.source
        clock = taken.arrival.clock
        progress.take_arrival(base, taken.after, clock, taken.arrival.silent_since)
        after = latest_watermark([before, progress.derived_watermark])
        rows_of_step = tuple(events.get(number, ()))
        is_heartbeat = taken.arrival.silent_since is not None and not rows_of_step
        silent_since = progress.silent_since if is_heartbeat else None
        if silent_since is None:
            newest_data = clock
        else:
            silent_since = latest_watermark([silent_since, newest_data])
        arrival = ScenarioArrival(
            rows_of_step,
            clock,
            ends=after == INFINITY,
            silent_since=silent_since,
            source=source.name,
        )
        yield Step(number, arrival, before, after, taken)
        before = after


def is_known_watermark(source: Source) -> bool:
    """Return whether the watermark can be computed here. An SQL expression would need an engine."""
    if isinstance(source, DerivedSource):
        return all(map(is_known_watermark, source.base_sources))
    strategy = source.watermark
    if isinstance(strategy, Punctuated):
        return _plain_column(source, strategy) is not None
    return isinstance(strategy, _WITHOUT_ENGINE)


def event_time(source: Source, arrival: ScenarioArrival, row: tuple[Any, ...]) -> int | None:
    """Return the event time of a row; None if it is missing or the source does not accept it."""
    time = row[list(source.columns).index(source.event_time)]
    if time is None or not EARLIEST <= time < LATEST:
        return None
    if source.max_future_skew is None:
        return time
    if time <= arrival.clock + parse_duration(source.max_future_skew):
        return time
    return None


def _parse_value(value: Any, ddl: str) -> Any:  # noqa: ANN401
    """Convert a value of a result to the form of a scenario's rows: a `timestamp` becomes a number
    of microseconds."""
    if value is None or ddl.lower() != "timestamp":
        return value
    if value == "+infinity":
        return INFINITY
    return parse_instant(value)


def _observe_newest(source: Source, arrival: ScenarioArrival) -> str | None:
    """Return the newest time in an arrival's rows, in the format of the strategy's `observe`.

    The time is a number of microseconds as text; None if no row has a time. With partitions, the
    result is a JSON array of pairs of a partition and its newest time.
    """
    columns = list(source.columns)
    strategy = source.watermark
    column = _plain_column(source, strategy) if isinstance(strategy, Punctuated) else None

    def read_time(row: tuple[Any, ...]) -> int | None:
        believed = event_time(source, arrival, row)
        if column is None:
            return believed
        return row[columns.index(column)]

    if strategy.group_column is None:
        return _find_newest(map(read_time, arrival.rows))
    partition_index = columns.index(strategy.group_column)
    times_by_partition: dict[str | None, list[int | None]] = {}
    for row in arrival.rows:
        value = row[partition_index]
        partition = None if value is None else str(value)
        times_by_partition.setdefault(partition, []).append(read_time(row))
    observed = list[tuple[str | None, str]]()
    for partition, times in times_by_partition.items():
        newest = _find_newest(times)
        if newest is not None:
            observed.append((partition, newest))
    return json.dumps(observed)


def _find_newest(times: Iterable[int | None]) -> str | None:
    newest = max((time for time in times if time is not None), default=None)
    if newest is None:
        return None
    return str(newest)


def _plain_column(source: Source, strategy: Punctuated) -> str | None:
    """Return the strategy's expression if it is just the name of a timestamp column, else None."""
    name = strategy.expression.strip().strip("`")
    if source.columns.get(name, "").lower() == "timestamp":
        return name
    return None
