"""The content of a scenario's picture: the arrivals of its sources in order, and their results."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime, format_duration
from tidemark.define.derived.derived_source import DerivedSource, own_columns, retraction_column
from tidemark.define.source import Source
from tidemark_streaming.scenario.draw import classified_events as verdicts
from tidemark_streaming.scenario.draw.bars import Bar, list_bars, negate_text
from tidemark_streaming.scenario.draw.classified_events import ClassifiedEvent, classify_events
from tidemark_streaming.scenario.draw.event_logs import (
    Step,
    event_logs,
    event_time,
    is_known_watermark,
)
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import to_plain, to_short_text, truncate

MEANING = {
    verdicts.ON_TIME: "on time",
    verdicts.LATE: "late",
    verdicts.TOO_LATE: "too late",
    verdicts.SOME_LATE: "late for some of its windows",
    verdicts.NO_TIME: "no event time",
    verdicts.DUPLICATE: "duplicate",
}
"""The legend text of each lateness."""

_CROWD = 8
_LABEL = 28


@dataclass(frozen=True)
class Mark:
    """An event of an arrival; `time` is None if it has no valid event time."""

    time: int | None
    label: str
    lateness: str


@dataclass(frozen=True)
class Track:
    """The arrivals of one source.

    Args:
        heading: the source's name, with its bases or watermark; empty if there is only one source.
        clocks: the labels of the arrivals.
        marks: the events of each arrival.
        watermark: true if the watermark is known without an engine, so that it can be drawn.
    """

    heading: str
    steps: list[Step]
    clocks: list[str]
    marks: list[list[Mark]]
    watermark: bool


@dataclass(frozen=True)
class Timeline:
    """The whole picture.

    Args:
        tracks: the sources, each after its bases.
        aligned: true if windows have the same bounds for all keys.
        bars: the windows, sorted by key and start; None if the scenario has no transform.
    """

    title: str
    about: str
    tracks: list[Track]
    aligned: bool
    bars: list[Bar] | None

    @property
    def instants(self) -> list[int]:
        """The instants that the axis must show, except watermarks."""
        bounds = [b for bar in self.bars or () for b in bar.span if BEGINNING < b < INFINITY]
        marks = [m for track in self.tracks for marks in track.marks for m in marks]
        return bounds + [m.time for m in marks if m.time is not None]

    @property
    def watermarks(self) -> list[int]:
        """The finite watermarks after the arrivals."""
        marks = [s.after for track in self.tracks for s in track.steps]
        return [mark for mark in marks if mark is not None and mark < INFINITY]

    @property
    def shown_lateness(self) -> set[str]:
        """The distinct values of `Mark.verdict` in the picture."""
        return {m.lateness for track in self.tracks for marks in track.marks for m in marks}

    @property
    def gutter(self) -> int:
        """The length of the longest label at the side."""
        clocks = [clock for track in self.tracks for clock in track.clocks]
        return max(map(len, [*clocks, *(bar.key for bar in self.bars or ())]), default=0)


def create_timeline(scenario: Scenario, result: Mapping[str, Any]) -> Timeline:
    """Return the picture's content for a scenario and its result."""
    logs = event_logs(scenario, result)
    sources = {**scenario.sources, **scenario.derived}
    excluded = _find_too_late(scenario, result, logs)
    marks = {
        name: [_mark_events(source, step, excluded) for step in logs[name]]
        for name, source in sources.items()
    }
    transform = scenario.windowed
    drawn_bars = None
    if transform is not None:
        source_steps = logs[transform.source.name]
        events = classify_events(scenario, source_steps)
        marks[transform.source.name] = [
            [
                Mark(e.time, _label_event(scenario, e), e.overall_lateness)
                for e in events
                if e.step is step
            ]
            for step in source_steps
        ]
        drawn_bars = list_bars(scenario, result, source_steps, events)
    return Timeline(
        title=truncate(scenario.name, 90),
        about="" if transform is None else _describe_transform(scenario),
        tracks=[
            Track(
                heading=_describe_source(source) if len(sources) > 1 else "",
                steps=logs[name],
                clocks=_label_arrivals(scenario, logs[name]),
                marks=marks[name],
                watermark=is_known_watermark(source),
            )
            for name, source in sources.items()
        ],
        aligned=transform is not None and not transform.window.merges,
        bars=drawn_bars,
    )


def _describe_source(source: Source) -> str:
    if isinstance(source, DerivedSource):
        return f"{source.name}, computed from {' and '.join(b.name for b in source.base_sources)}"
    return f"{source.name}, watermark {source.watermark}"


_Place = tuple[str, int, tuple[Any, ...]]
"""An event of a base: the name of the base, the arrival's number, and the values as text."""


def _find_too_late(
    scenario: Scenario, result: Mapping[str, Any], logs: Mapping[str, Sequence[Step]]
) -> set[_Place]:
    """Return the events that take no part in a derived source because they are too late."""
    too_late = set[_Place]()
    for name, source in scenario.derived.items():
        columns = {base.name: base.columns for base in source.base_sources}
        for row in result["unjoined"][name]:
            taken = logs[name][row["arrival"]].taken
            if row["reason"] == "too_late" and taken is not None:
                values = tuple(str(row[c]) for c in columns[row["source"]])
                too_late.add((row["source"], taken.number, values))
    return too_late


def _mark_events(source: Source, step: Step, too_late: set[_Place]) -> list[Mark]:
    """Return the events of an arrival. An event behind the watermark is late, or too late."""
    marks = list[Mark]()
    for row in step.arrival.rows:
        time = event_time(source, step.arrival, row)
        values = _values_by_column(source, row)
        if time is None:
            verdict = verdicts.NO_TIME
        elif (source.name, step.number, tuple(map(str, values.values()))) in too_late:
            verdict = verdicts.TOO_LATE
        else:
            behind = step.before is not None and time < step.before
            verdict = verdicts.LATE if behind else verdicts.ON_TIME
        marks.append(Mark(time, _label_row(source, row), verdict))
    return marks


def _values_by_column(source: Source, row: tuple[Any, ...]) -> dict[str, object]:
    """Return the values of a row by column, in the form of a result."""
    named = zip(source.columns.items(), row, strict=True)
    return {column: to_plain(value, ddl.lower()) for (column, ddl), value in named}


def _label_row(source: Source, row: tuple[Any, ...]) -> str:
    """Return a row's values, without timestamps and without columns that a derivation added."""
    values = _values_by_column(source, row)
    kinds = {column: ddl.lower() for column, ddl in source.columns.items()}
    shown = [values[c] for c in own_columns(source) if kinds[c] != "timestamp"]
    return _mark_retraction(source, row, " ".join(map(to_short_text, shown)))


def _mark_retraction(source: Source, row: tuple[Any, ...], label: str) -> str:
    """Return the label of a row, truncated, with a minus sign if the row is a retraction."""
    column = retraction_column(source)
    is_retraction = column is not None and _values_by_column(source, row)[column]
    return truncate(negate_text(label) if is_retraction else label, _LABEL)


def _describe_transform(scenario: Scenario) -> str:
    t = scenario.transform
    return "; ".join(
        [
            f"{t.window}" + (f" by {', '.join(t.keys)}" if t.keys else ""),
            *([] if scenario.derived else [f"watermark {scenario.source.watermark}"]),
            f"lateness {format_duration(t.allowed_lateness)}",
            f"fires {t.trigger}",
            *([t.accumulation] if t.accumulation else []),
            *([f"deduplicate {t.deduplicate}"] if t.deduplicate else []),
        ]
    )


def _is_in(column: str, expressions: str) -> bool:
    """Return whether expressions use a column, and not only a function of the same name."""
    return re.search(rf"(?<!\w){re.escape(column)}(?![\w(])", expressions) is not None


def _label_event(scenario: Scenario, event: ClassifiedEvent) -> str:
    """Return the label of an event: the key and the aggregated values. For an asset, whose function
    prepares the rows, the label has all values of the row."""
    if scenario.prepares_rows:
        return _label_row(scenario.source, event.row)
    used = " ".join(map(str, scenario.transform.aggregates.values()))
    named = _values_by_column(scenario.source, event.row)
    values = [v for column, v in named.items() if _is_in(column, used)]
    label = " ".join(to_short_text(v) for v in (*event.key, *values))
    return _mark_retraction(scenario.source, event.row, label)


def _label_arrivals(scenario: Scenario, steps: Sequence[Step]) -> list[str]:
    """Return the label of each arrival: its number and, if the clock advances, the clock.

    For a derived source, the label has the base's arrival instead of the clock: `#3 orders #1`.
    In a scenario of several sources, each arrival advances the clock by a tick. The clock is then
    shown only if it advances by a second or more in total.
    """
    numbers = [f"#{s.number}".ljust(len(f"#{len(steps) - 1}")) for s in steps]
    origins = [f" {s.taken.arrival.source} #{s.taken.number}" if s.taken else "" for s in steps]
    times = [as_datetime(a.clock) for a in scenario.arrivals]
    span = max(times) - min(times) if times else timedelta(0)
    several = len(scenario.sources) + len(scenario.derived) > 1
    if not span or (several and span < timedelta(seconds=1)) or any(origins):
        return [f"{n}{origin}" for n, origin in zip(numbers, origins, strict=True)]
    form = "%H:%M:%S" if len({t.date() for t in times}) == 1 else "%m-%d %H:%M:%S"
    form += ".%f" if any(t.microsecond for t in times) else ""
    return [
        f"{n} {as_datetime(s.arrival.clock):{form}}" for n, s in zip(numbers, steps, strict=True)
    ]


def describe_empty_arrival(track: Track, step: Step) -> str:
    """Return the description of an arrival without rows."""
    if step.arrival.ends:
        return "the stream ends"
    if step.arrival.watermark is not None:
        return "watermark"
    if track.heading:
        if step.arrival.silent_since is None:
            return "no rows"
        return "heartbeat"
    before = track.steps[step.number - 1].arrival.clock if step.number else step.arrival.clock
    if step.arrival.clock > before:
        return "clock"
    return "no rows"


def group_marks(
    marks: Sequence[Mark], place_time: Callable[[int | None], int]
) -> list[tuple[int, str, str]]:
    """Return the positions, lateness and labels of events, from left to right.

    If there are many events, those with the same position and lateness are merged, and their count
    is the label.
    """
    grouped: dict[tuple[int, str], list[str]] = {}
    for mark in marks:
        grouped.setdefault((place_time(mark.time), mark.lateness), []).append(mark.label)
    places = sorted(grouped.items())
    if len(marks) <= _CROWD:
        return [
            (position, verdict, label) for (position, verdict), all_ in places for label in all_
        ]
    return [(*key, f"x{len(labels)}" if len(labels) > 1 else "") for key, labels in places]
