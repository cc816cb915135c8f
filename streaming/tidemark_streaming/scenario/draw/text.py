"""Draw a scenario and its result as a picture: the arrivals, the firings, and their times.

Event time goes from left to right, and arrivals go from top to bottom in their order. The watermark
is a line that steps to the right as it advances. The windows are bars below, with their panes.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.scenario.draw import classified_events
from tidemark_streaming.scenario.draw.axis import Axis, axis
from tidemark_streaming.scenario.draw.bars import Bar, by_key, lanes
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.draw.svg import svg
from tidemark_streaming.scenario.draw.timeline import (
    MEANING,
    Mark,
    Timeline,
    Track,
    group_marks,
    note,
    timeline,
)
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import truncate

__all__ = ["svg", "text"]

WIDTH = 100
GLYPHS = {
    classified_events.ON_TIME: "●",
    classified_events.LATE: "◆",
    classified_events.TOO_LATE: "✕",
    classified_events.SOME_LATE: "◐",
    classified_events.NO_TIME: "∅",
    classified_events.DUPLICATE: "○",
}
_WATERMARK = "┊"


def text(scenario: Scenario, result: Mapping[str, Any]) -> str:
    """Return the picture for a terminal, in at most 100 columns."""
    drawn = timeline(scenario, result)
    gutter = drawn.gutter + 2
    scale = axis(drawn.instants, drawn.watermarks, WIDTH - gutter - 1)
    lines = [drawn.title, *wrap(drawn.about, WIDTH), ""]
    lines += _axis(scale, gutter)
    for track in drawn.tracks:
        lines += ["", truncate(track.heading, WIDTH)] if track.heading else []
        for step, marks, clock in zip(track.steps, track.marks, track.clocks, strict=True):
            lines += _arrival(track, scale, step, marks, clock.ljust(gutter))
    if drawn.bars is not None:
        lines += ["", *(_windows(drawn.bars, scale, gutter) or ["(no output)"])]
    lines += _legend(drawn)
    return "\n".join(line.rstrip() for line in lines) + "\n"


class _Line:
    """A line of characters, with methods to write text into free cells."""

    def __init__(self, length: int) -> None:
        self.cells = [" "] * length

    def fits(self, column: int, text: str) -> bool:
        """Return whether the cells for a text at a column, and the cell after it, are free."""
        part = self.cells[column : column + len(text) + 1]
        return column + len(text) <= len(self.cells) and not "".join(part).strip()

    def put(self, column: int, text: str) -> None:
        self.cells[column : column + len(text)] = text

    def __str__(self) -> str:
        return "".join(self.cells)


def _axis(scale: Axis, gutter: int) -> list[str]:
    labels = _Line(scale.length)
    ruler = _Line(scale.length)
    ruler.put(0, "─" * scale.length)
    for instant, label in scale.ticks(1):
        column = round(scale.at(instant))
        if labels.fits(column, label):
            labels.put(column, label)
            ruler.put(column, "┬")
    day = f", {scale.day}" if scale.day else ""
    return [
        " " * gutter + f"event time{day} (UTC)",
        " " * gutter + str(labels),
        " " * gutter + str(ruler),
    ]


def _arrival(track: Track, scale: Axis, step: Step, marks: Sequence[Mark], clock: str) -> list[str]:
    lines = [_Line(scale.length)]
    for column, label in _place_marks(scale, marks):
        if not any(line.fits(column, label) for line in lines):
            lines.append(_Line(scale.length))
        next(line for line in lines if line.fits(column, label)).put(column, label)
    if not marks:
        lines[0].put(*_place_note(track, scale, step))
    if track.watermark and step.before is not None and step.before < INFINITY:
        column = min(round(scale.at(step.before)), scale.length - 1)
        for line in lines:
            if line.cells[column] == " ":
                line.put(column, _WATERMARK)
    rendered = [(clock if n == 0 else " " * len(clock)) + str(line) for n, line in enumerate(lines)]
    return rendered + [" " * len(clock) + move for move in _move(track, scale, step)]


def _place_marks(scale: Axis, marks: Sequence[Mark]) -> list[tuple[int, str]]:
    """Return the columns and texts of the events. An event without a time is at the right edge."""
    last = scale.length - 1
    grouped = group_marks(marks, lambda t: last if t is None else min(round(scale.at(t)), last))
    return [
        (start, GLYPHS[verdict] + label)
        if start + len(label) <= last
        else (max(start - len(label), 0), label + GLYPHS[verdict])
        for start, verdict, label in grouped
    ]


def _place_note(track: Track, scale: Axis, step: Step) -> tuple[int, str]:
    text = f"({note(track, step)})"
    start = 0 if step.before is None else round(scale.at(step.before)) + 2
    return (start if start + len(text) <= scale.length else start - len(text) - 4), text


def _move(track: Track, scale: Axis, step: Step) -> list[str]:
    """Return the line that shows the advance of the watermark; none if no advance is visible."""
    if not track.watermark or step.after is None or step.after == step.before:
        return []
    line = _Line(scale.length)
    end = scale.length - 1
    begin = 0 if step.before is None else min(round(scale.at(step.before)), end)
    until = min(round(scale.at(step.after)), end)
    if begin == until:
        return []
    line.put(begin, "─" * (until - begin))
    line.put(begin, "╌" if step.before is None else "└")
    line.put(until, "┐" if step.after < INFINITY else "▶")
    return [str(line)]


def _windows(bars: Sequence[Bar], scale: Axis, gutter: int) -> list[str]:
    lines: list[str] = []
    for key, key_bars in by_key(bars).items():
        for lane in lanes(key_bars, lambda bar: _extent(bar, scale)):
            texts = [_to_lines(bar, scale) for bar in lane]
            block = [_Line(scale.length) for _ in range(1 + max(map(len, texts)))]
            for bar, bar_lines in zip(lane, texts, strict=True):
                begin, end = _columns(bar, scale)
                block[0].put(begin, _bar(bar, end - begin))
                for line, part in zip(block[1:], bar_lines, strict=False):
                    line.put(_left(begin, part, scale), part)
            names = [key, *[""] * (len(block) - 1)]
            key = ""
            lines += [f"{n:{gutter}}{line}" for n, line in zip(names, block, strict=True)]
    return lines


def _to_lines(bar: Bar, scale: Axis) -> list[str]:
    return [truncate(line, scale.length) for line in (bar.caption, *map(str, bar.panes))]


def _columns(bar: Bar, scale: Axis) -> tuple[int, int]:
    begin, end = (round(scale.at(bound)) for bound in bar.span)
    begin = min(begin, scale.length - 2)
    return begin, max(end, begin + 2)


def _bar(bar: Bar, length: int) -> str:
    opens = "<" if bar.span[0] == BEGINNING else "["
    closes = ">" if bar.span[1] == INFINITY else ")"
    return opens + ("=" if bar.published else "-") * (length - 2) + closes


def _left(begin: int, part: str, scale: Axis) -> int:
    return max(0, min(begin, scale.length - len(part)))


def _extent(bar: Bar, scale: Axis) -> tuple[float, float]:
    begin, end = _columns(bar, scale)
    texts = [(_left(begin, part, scale), len(part)) for part in _to_lines(bar, scale)]
    return min(begin, *(start for start, _ in texts)), max(
        end, *(start + n + 1 for start, n in texts)
    )


def _legend(drawn: Timeline) -> list[str]:
    parts = [f"{glyph} {MEANING[v]}" for v, glyph in GLYPHS.items() if v in drawn.verdicts]
    parts += [f"{_WATERMARK} watermark"] if any(t.watermark for t in drawn.tracks) else []
    lines = wrap("   ".join(parts), WIDTH)
    if drawn.bars:
        lines.append("[==) a published window, and its panes: TIMING #arrival: values")
    return ["", *lines]
