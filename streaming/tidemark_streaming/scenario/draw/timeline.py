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
    """The part of a picture that shows the arrivals and the watermark of one source.

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
    """The content of a picture: the tracks of the sources, and the windows.

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
        instants = list[int]()
        for bar in self.bars or ():
            for bound in bar.span:
                if BEGINNING < bound < INFINITY:
                    instants.append(bound)
        for mark in self._list_marks():
            if mark.time is not None:
                instants.append(mark.time)
        return instants

    @property
    def watermarks(self) -> list[int]:
        """The finite watermarks after the arrivals."""
        watermarks = list[int]()
        for track in self.tracks:
            for step in track.steps:
                if step.after is not None and step.after < INFINITY:
                    watermarks.append(step.after)
        return watermarks

    @property
    def shown_lateness(self) -> set[str]:
        """The distinct values of `Mark.lateness` in the picture."""
        return {mark.lateness for mark in self._list_marks()}

    @property
    def gutter(self) -> int:
        """The length of the longest label at the side."""
        labels = [""]
        for track in self.tracks:
            labels += track.clocks
        for bar in self.bars or ():
            labels.append(bar.key)
        return max(map(len, labels))

    def _list_marks(self) -> list[Mark]:
        marks = list[Mark]()
        for track in self.tracks:
            for step_marks in track.marks:
                marks += step_marks
        return marks


def create_timeline(scenario: Scenario, result: Mapping[str, Any]) -> Timeline:
    """Return the picture's content for a scenario and its result."""
    logs = event_logs(scenario, result)
    sources = {**scenario.sources, **scenario.derived}
    too_late = _find_too_late(scenario, result, logs)
    marks = dict[str, list[list[Mark]]]()
    for name, source in sources.items():
        marks[name] = [_mark_events(source, step, too_late) for step in logs[name]]
    transform = scenario.windowed
    drawn_bars = None
    description = ""
    is_aligned = False
    if transform is not None:
        source_steps = logs[transform.source.name]
        events = classify_events(scenario, source_steps)
        marks[transform.source.name] = _mark_classified_events(scenario, source_steps, events)
        drawn_bars = list_bars(scenario, result, source_steps, events)
        description = _describe_transform(scenario)
        is_aligned = not transform.window.merges
    tracks = list[Track]()
    for name, source in sources.items():
        track = Track(
            heading=_describe_source(source) if len(sources) > 1 else "",
            steps=logs[name],
            clocks=_label_arrivals(scenario, logs[name]),
            marks=marks[name],
            watermark=is_known_watermark(source),
        )
        tracks.append(track)
    return Timeline(
        title=truncate(scenario.name, 90),
        about=description,
        tracks=tracks,
        aligned=is_aligned,
        bars=drawn_bars,
    )


def _mark_classified_events(
    scenario: Scenario, steps: Sequence[Step], events: Sequence[ClassifiedEvent]
) -> list[list[Mark]]:
    """Return the events of the transform's source, by arrival."""
    marks = list[list[Mark]]()
    for step in steps:
        step_marks = list[Mark]()
        for event in events:
            if event.step is step:
                label = _label_event(scenario, event)
                step_marks.append(Mark(event.time, label, event.overall_lateness))
        marks.append(step_marks)
    return marks


def _describe_source(source: Source) -> str:
    if isinstance(source, DerivedSource):
        bases = " and ".join(base.name for base in source.base_sources)
        return f"{source.name}, computed from {bases}"
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
            base = row["source"]
            taken = logs[name][row["arrival"]].taken
            if row["reason"] == "too_late" and taken is not None:
                values = tuple(str(row[column]) for column in columns[base])
                too_late.add((base, taken.number, values))
    return too_late


def _mark_events(source: Source, step: Step, too_late: set[_Place]) -> list[Mark]:
    """Return the events of an arrival. An event behind the watermark is late, or too late."""
    marks = list[Mark]()
    for row in step.arrival.rows:
        time = event_time(source, step.arrival, row)
        values = tuple(map(str, _values_by_column(source, row).values()))
        if time is None:
            lateness = verdicts.NO_TIME
        elif (source.name, step.number, values) in too_late:
            lateness = verdicts.TOO_LATE
        elif step.before is not None and time < step.before:
            lateness = verdicts.LATE
        else:
            lateness = verdicts.ON_TIME
        marks.append(Mark(time, _label_row(source, row), lateness))
    return marks


def _values_by_column(source: Source, row: tuple[Any, ...]) -> dict[str, object]:
    """Return the values of a row by column, in the form of a result."""
    named = zip(source.columns.items(), row, strict=True)
    return {column: to_plain(value, ddl.lower()) for (column, ddl), value in named}


def _label_row(source: Source, row: tuple[Any, ...]) -> str:
    """Return a row's values, without timestamps and without columns that a derivation added."""
    values = _values_by_column(source, row)
    texts = list[str]()
    for column in own_columns(source):
        if source.columns[column].lower() != "timestamp":
            texts.append(to_short_text(values[column]))
    return _mark_retraction(source, row, " ".join(texts))


def _mark_retraction(source: Source, row: tuple[Any, ...], label: str) -> str:
    """Return the label of a row, truncated, with a minus sign if the row is a retraction."""
    column = retraction_column(source)
    if column is not None and _values_by_column(source, row)[column]:
        label = negate_text(label)
    return truncate(label, _LABEL)


def _describe_transform(scenario: Scenario) -> str:
    transform = scenario.transform
    window = str(transform.window)
    if transform.keys:
        window += f" by {', '.join(transform.keys)}"
    parts = [window]
    if not scenario.derived:
        parts.append(f"watermark {scenario.source.watermark}")
    parts.append(f"lateness {format_duration(transform.allowed_lateness)}")
    parts.append(f"fires {transform.trigger}")
    if transform.accumulation:
        parts.append(transform.accumulation)
    if transform.deduplicate:
        parts.append(f"deduplicate {transform.deduplicate}")
    return "; ".join(parts)


def _is_in(column: str, expressions: str) -> bool:
    """Return whether expressions use a column, and not only a function of the same name."""
    return re.search(rf"(?<!\w){re.escape(column)}(?![\w(])", expressions) is not None


def _label_event(scenario: Scenario, event: ClassifiedEvent) -> str:
    """Return the label of an event: the key and the aggregated values. For an asset, whose function
    prepares the rows, the label has all values of the row."""
    if scenario.prepares_rows:
        return _label_row(scenario.source, event.row)
    expressions = " ".join(map(str, scenario.transform.aggregates.values()))
    texts = list(map(to_short_text, event.key))
    for column, value in _values_by_column(scenario.source, event.row).items():
        if _is_in(column, expressions):
            texts.append(to_short_text(value))
    return _mark_retraction(scenario.source, event.row, " ".join(texts))


def _label_arrivals(scenario: Scenario, steps: Sequence[Step]) -> list[str]:
    """Return the label of each arrival: its number and, if the clock advances, the clock.

    For a derived source, the label has the base's arrival instead of the clock: `#3 orders #1`.
    In a scenario of several sources, each arrival advances the clock by a tick. The clock is then
    shown only if it advances by a second or more in total.
    """
    number_width = len(f"#{len(steps) - 1}")
    clock_form = _choose_clock_form(scenario)
    is_derived = any(step.taken for step in steps)
    labels = list[str]()
    for step in steps:
        label = f"#{step.number}".ljust(number_width)
        if step.taken:
            label += f" {step.taken.arrival.source} #{step.taken.number}"
        elif clock_form and not is_derived:
            label += f" {as_datetime(step.arrival.clock):{clock_form}}"
        labels.append(label)
    return labels


def _choose_clock_form(scenario: Scenario) -> str:
    """Return the format of the clock in labels; empty if the clock is not shown."""
    times = [as_datetime(arrival.clock) for arrival in scenario.arrivals]
    span = max(times) - min(times) if times else timedelta(0)
    has_several_sources = len(scenario.sources) + len(scenario.derived) > 1
    least_span = timedelta(seconds=1) if has_several_sources else timedelta(microseconds=1)
    if span < least_span:
        return ""
    dates = {time.date() for time in times}
    form = "%H:%M:%S" if len(dates) == 1 else "%m-%d %H:%M:%S"
    if any(time.microsecond for time in times):
        form += ".%f"
    return form


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
    if step.number:
        previous = track.steps[step.number - 1]
        if step.arrival.clock > previous.arrival.clock:
            return "clock"
    return "no rows"


def group_marks(
    marks: Sequence[Mark], place_time: Callable[[int | None], int]
) -> list[tuple[int, str, str]]:
    """Return the positions, lateness and labels of events, from left to right.

    If there are many events, those with the same position and lateness are merged, and their count
    is the label.
    """
    labels_by_place: dict[tuple[int, str], list[str]] = {}
    for mark in marks:
        key = (place_time(mark.time), mark.lateness)
        labels_by_place.setdefault(key, []).append(mark.label)
    grouped = list[tuple[int, str, str]]()
    for (position, lateness), labels in sorted(labels_by_place.items()):
        if len(marks) <= _CROWD:
            grouped += [(position, lateness, label) for label in labels]
        else:
            count = f"x{len(labels)}" if len(labels) > 1 else ""
            grouped.append((position, lateness, count))
    return grouped
