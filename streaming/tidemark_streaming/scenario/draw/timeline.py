"""The content of a scenario's picture: its arrivals in order, and their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY, as_datetime, describe
from tidemark_streaming.scenario.draw import classified_events as verdicts
from tidemark_streaming.scenario.draw.bars import Bar, bars
from tidemark_streaming.scenario.draw.classified_events import (
    ClassifiedEvent,
    Step,
    classify,
    is_known_watermark,
    steps,
)
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import to_plain, to_short_text, truncate

MEANING = {
    verdicts.ON_TIME: "on time",
    verdicts.LATE: "late, admitted",
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
    verdict: str


@dataclass(frozen=True)
class Timeline:
    """The whole picture.

    Args:
        marks: the events of each arrival.
        watermark: true if the watermark is known without an engine, so that it can be drawn.
        aligned: true if windows have the same bounds for all keys.
        bars: the windows by key and start.
    """

    title: str
    about: str
    steps: list[Step]
    marks: list[list[Mark]]
    watermark: bool
    aligned: bool
    bars: list[Bar]

    @property
    def instants(self) -> list[int]:
        """The instants that the axis must show, except watermarks."""
        bounds = [b for bar in self.bars for b in bar.span if BEGINNING < b < INFINITY]
        return bounds + [m.time for marks in self.marks for m in marks if m.time is not None]

    @property
    def watermarks(self) -> list[int]:
        """The watermarks that are instants."""
        return [s.after for s in self.steps if s.after is not None and s.after < INFINITY]


def timeline(scenario: Scenario, result: Mapping[str, Any]) -> Timeline:
    """Return the picture's content for a scenario and its result."""
    arrivals = steps(scenario)
    events = classify(scenario, arrivals)
    return Timeline(
        title=truncate(scenario.name, 90),
        about=_about(scenario),
        steps=arrivals,
        marks=[
            [Mark(e.time, _label(scenario, e), e.verdict) for e in events if e.step is step]
            for step in arrivals
        ],
        watermark=is_known_watermark(scenario),
        aligned=not scenario.transform.window.merges,
        bars=bars(scenario, result, arrivals, events),
    )


def _about(scenario: Scenario) -> str:
    t = scenario.transform
    return "; ".join(
        [
            f"{t.window}" + (f" by {', '.join(t.keys)}" if t.keys else ""),
            f"watermark {scenario.source.watermark}",
            f"lateness {describe(t.allowed_lateness)}",
            f"fires {t.trigger}",
            *([t.accumulation] if t.accumulation else []),
            *([f"deduplicate {t.deduplicate}"] if t.deduplicate else []),
        ]
    )


def _label(scenario: Scenario, event: ClassifiedEvent) -> str:
    """Return the label of an event: the key and the aggregated values. For an asset, whose function
    prepares the rows, it is all values."""
    if scenario.prepares:
        given = zip(scenario.source.columns.items(), event.row, strict=True)
        rest = [
            to_plain(v, ddl.lower()) for (c, ddl), v in given if c != scenario.source.event_time
        ]
        return truncate(" ".join(map(to_short_text, rest)), _LABEL)
    used = " ".join(map(str, scenario.transform.aggregates.values()))
    named = zip(scenario.source.columns.items(), event.row, strict=True)
    values = [to_plain(v, ddl) for (c, ddl), v in named if f"`{c}`" in used]
    return truncate(" ".join(to_short_text(v) for v in (*event.key, *values)), _LABEL)


def clocks(drawn: Timeline) -> list[str]:
    """Return the labels of the arrivals: their numbers, with the processing clock if it
    advances."""
    times = [as_datetime(s.arrival.clock) for s in drawn.steps]
    if len(set(times)) < 2:
        return [f"#{s.number}" for s in drawn.steps]
    form = "%H:%M:%S" if len({t.date() for t in times}) == 1 else "%m-%d %H:%M:%S"
    form += ".%f" if any(t.microsecond for t in times) else ""
    width = len(f"#{len(times) - 1}")
    return [f"#{n}".ljust(width) + f" {t:{form}}" for n, t in enumerate(times)]


def note(drawn: Timeline, step: Step) -> str:
    """Return the description of an arrival without rows."""
    if step.arrival.ends:
        return "the stream ends"
    if step.arrival.watermark is not None:
        return "watermark"
    before = drawn.steps[step.number - 1].arrival.clock if step.number else step.arrival.clock
    return "clock" if step.arrival.clock > before else "no rows"


def group_marks(
    marks: Sequence[Mark], place: Callable[[int | None], int]
) -> list[tuple[int, str, str]]:
    """Return the positions, lateness and labels of events, from left to right.

    If there are many, those with the same position and lateness are merged into one with their
    count.
    """
    found: dict[tuple[int, str], list[str]] = {}
    for mark in marks:
        found.setdefault((place(mark.time), mark.verdict), []).append(mark.label)
    places = sorted(found.items())
    if len(marks) <= _CROWD:
        return [(at, verdict, label) for (at, verdict), all_ in places for label in all_]
    return [(*key, f"x{len(labels)}" if len(labels) > 1 else "") for key, labels in places]
