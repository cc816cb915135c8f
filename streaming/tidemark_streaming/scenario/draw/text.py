"""Draw a scenario and its result as a picture: the arrivals, the firings, and their times.

Event time goes from left to right, and arrivals go from top to bottom in their order. The watermark
is a line that steps to the right as it advances. The windows are bars below, with their panes.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.scenario.draw import classified_events
from tidemark_streaming.scenario.draw.axis import Axis, create_axis
from tidemark_streaming.scenario.draw.bars import Bar, arrange_in_lanes, group_by_key
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.draw.svg import draw_svg
from tidemark_streaming.scenario.draw.timeline import (
    MEANING,
    Mark,
    Timeline,
    Track,
    create_timeline,
    describe_empty_arrival,
    group_marks,
)
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import truncate

__all__ = ["draw_svg", "draw_text"]

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


def draw_text(scenario: Scenario, result: Mapping[str, Any]) -> str:
    """Return the picture for a terminal, in at most 100 columns."""
    drawn = create_timeline(scenario, result)
    gutter = drawn.gutter + 2
    scale = create_axis(drawn.instants, drawn.watermarks, WIDTH - gutter - 1)
    lines = [drawn.title, *wrap(drawn.about, WIDTH), ""]
    lines += _draw_axis(scale, gutter)
    for track in drawn.tracks:
        lines += ["", truncate(track.heading, WIDTH)] if track.heading else []
        for step, marks, clock in zip(track.steps, track.marks, track.clocks, strict=True):
            lines += _draw_arrival(track, scale, step, marks, clock.ljust(gutter))
    if drawn.bars is not None:
        lines += ["", *(_draw_windows(drawn.bars, scale, gutter) or ["(no output)"])]
    lines += _draw_legend(drawn)
    return "\n".join(line.rstrip() for line in lines) + "\n"


class _Line:
    """A line of characters, with methods to write text into free cells."""

    def __init__(self, length: int) -> None:
        self.cells = [" "] * length

    def has_room(self, column: int, text: str) -> bool:
        """Return whether the cells for a text at a column, and the cell after it, are free."""
        part = self.cells[column : column + len(text) + 1]
        return column + len(text) <= len(self.cells) and not "".join(part).strip()

    def write_text(self, column: int, text: str) -> None:
        self.cells[column : column + len(text)] = text

    def __str__(self) -> str:
        return "".join(self.cells)


def _draw_axis(scale: Axis, gutter: int) -> list[str]:
    labels = _Line(scale.length)
    ruler = _Line(scale.length)
    ruler.write_text(0, "─" * scale.length)
    for instant, label in scale.choose_ticks(1):
        column = round(scale.position_of(instant))
        if labels.has_room(column, label):
            labels.write_text(column, label)
            ruler.write_text(column, "┬")
    day = f", {scale.single_day}" if scale.single_day else ""
    return [
        " " * gutter + f"event time{day} (UTC)",
        " " * gutter + str(labels),
        " " * gutter + str(ruler),
    ]


def _draw_arrival(
    track: Track, scale: Axis, step: Step, marks: Sequence[Mark], clock: str
) -> list[str]:
    lines = [_Line(scale.length)]
    for column, label in _place_marks(scale, marks):
        if not any(line.has_room(column, label) for line in lines):
            lines.append(_Line(scale.length))
        next(line for line in lines if line.has_room(column, label)).write_text(column, label)
    if not marks:
        lines[0].write_text(*_place_note(track, scale, step))
    if track.watermark and step.before is not None and step.before < INFINITY:
        column = min(round(scale.position_of(step.before)), scale.length - 1)
        for line in lines:
            if line.cells[column] == " ":
                line.write_text(column, _WATERMARK)
    rendered = [(clock if n == 0 else " " * len(clock)) + str(line) for n, line in enumerate(lines)]
    return rendered + [" " * len(clock) + move for move in _draw_advance(track, scale, step)]


def _place_marks(scale: Axis, marks: Sequence[Mark]) -> list[tuple[int, str]]:
    """Return the columns and texts of the events. An event without a time is at the right edge."""
    last = scale.length - 1
    grouped = group_marks(
        marks, lambda t: last if t is None else min(round(scale.position_of(t)), last)
    )
    return [
        (start, GLYPHS[verdict] + label)
        if start + len(label) <= last
        else (max(start - len(label), 0), label + GLYPHS[verdict])
        for start, verdict, label in grouped
    ]


def _place_note(track: Track, scale: Axis, step: Step) -> tuple[int, str]:
    text = f"({describe_empty_arrival(track, step)})"
    start = 0 if step.before is None else round(scale.position_of(step.before)) + 2
    return (start if start + len(text) <= scale.length else start - len(text) - 4), text


def _draw_advance(track: Track, scale: Axis, step: Step) -> list[str]:
    """Return the line that shows the advance of the watermark; none if no advance is visible."""
    if not track.watermark or step.after is None or step.after == step.before:
        return []
    line = _Line(scale.length)
    end = scale.length - 1
    begin = 0 if step.before is None else min(round(scale.position_of(step.before)), end)
    until = min(round(scale.position_of(step.after)), end)
    if begin == until:
        return []
    line.write_text(begin, "─" * (until - begin))
    line.write_text(begin, "╌" if step.before is None else "└")
    line.write_text(until, "┐" if step.after < INFINITY else "▶")
    return [str(line)]


def _draw_windows(bars: Sequence[Bar], scale: Axis, gutter: int) -> list[str]:
    lines: list[str] = []
    for key, key_bars in group_by_key(bars).items():
        for lane in arrange_in_lanes(key_bars, lambda bar: _bar_extent(bar, scale)):
            texts = [_to_lines(bar, scale) for bar in lane]
            block = [_Line(scale.length) for _ in range(1 + max(map(len, texts)))]
            for bar, bar_lines in zip(lane, texts, strict=True):
                begin, end = _bar_columns(bar, scale)
                block[0].write_text(begin, _draw_bar(bar, end - begin))
                for line, part in zip(block[1:], bar_lines, strict=False):
                    line.write_text(_text_start(begin, part, scale), part)
            names = [key, *[""] * (len(block) - 1)]
            key = ""
            lines += [f"{n:{gutter}}{line}" for n, line in zip(names, block, strict=True)]
    return lines


def _to_lines(bar: Bar, scale: Axis) -> list[str]:
    return [truncate(line, scale.length) for line in (bar.caption, *map(str, bar.panes))]


def _bar_columns(bar: Bar, scale: Axis) -> tuple[int, int]:
    begin, end = (round(scale.position_of(bound)) for bound in bar.span)
    begin = min(begin, scale.length - 2)
    return begin, max(end, begin + 2)


def _draw_bar(bar: Bar, length: int) -> str:
    opens = "<" if bar.span[0] == BEGINNING else "["
    closes = ">" if bar.span[1] == INFINITY else ")"
    return opens + ("=" if bar.published else "-") * (length - 2) + closes


def _text_start(begin: int, part: str, scale: Axis) -> int:
    return max(0, min(begin, scale.length - len(part)))


def _bar_extent(bar: Bar, scale: Axis) -> tuple[float, float]:
    begin, end = _bar_columns(bar, scale)
    texts = [(_text_start(begin, part, scale), len(part)) for part in _to_lines(bar, scale)]
    return min(begin, *(start for start, _ in texts)), max(
        end, *(start + n + 1 for start, n in texts)
    )


def _draw_legend(drawn: Timeline) -> list[str]:
    parts = [f"{glyph} {MEANING[v]}" for v, glyph in GLYPHS.items() if v in drawn.shown_lateness]
    parts += [f"{_WATERMARK} watermark"] if any(t.watermark for t in drawn.tracks) else []
    lines = wrap("   ".join(parts), WIDTH)
    if drawn.bars:
        lines.append("[==) a published window, and its panes: TIMING #arrival: values")
    return ["", *lines]
