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
    lines = [drawn.title]
    lines += wrap(drawn.about, WIDTH)
    lines.append("")
    lines += _draw_axis(scale, gutter)
    for track in drawn.tracks:
        if track.heading:
            lines += ["", truncate(track.heading, WIDTH)]
        for step, marks, clock in zip(track.steps, track.marks, track.clocks, strict=True):
            lines += _draw_arrival(track, scale, step, marks, clock.ljust(gutter))
    if drawn.bars is not None:
        lines.append("")
        lines += _draw_windows(drawn.bars, scale, gutter) or ["(no output)"]
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
    margin = " " * gutter
    return [f"{margin}event time{day} (UTC)", f"{margin}{labels}", f"{margin}{ruler}"]


def _draw_arrival(
    track: Track, scale: Axis, step: Step, marks: Sequence[Mark], clock: str
) -> list[str]:
    lines = [_Line(scale.length)]
    for column, label in _place_marks(scale, marks):
        _find_line_with_room(lines, column, label).write_text(column, label)
    if not marks:
        column, note = _place_note(track, scale, step)
        lines[0].write_text(column, note)
    if track.watermark and step.before is not None and step.before < INFINITY:
        column = min(round(scale.position_of(step.before)), scale.length - 1)
        for line in lines:
            if line.cells[column] == " ":
                line.write_text(column, _WATERMARK)
    rendered = list(map(str, lines))
    rendered += _draw_advance(track, scale, step)
    margin = " " * len(clock)
    drawn = [margin + line for line in rendered]
    drawn[0] = clock + rendered[0]
    return drawn


def _find_line_with_room(lines: list[_Line], column: int, text: str) -> _Line:
    """Return the first line with room for a text. Add a line if there is none."""
    for line in lines:
        if line.has_room(column, text):
            return line
    added = _Line(len(lines[0].cells))
    lines.append(added)
    return added


def _place_marks(scale: Axis, marks: Sequence[Mark]) -> list[tuple[int, str]]:
    """Return the columns and texts of the events. An event without a time is at the right edge."""
    last = scale.length - 1

    def find_column(time: int | None) -> int:
        if time is None:
            return last
        return min(round(scale.position_of(time)), last)

    placed = list[tuple[int, str]]()
    for column, lateness, label in group_marks(marks, find_column):
        glyph = GLYPHS[lateness]
        if column + len(label) <= last:
            placed.append((column, glyph + label))
        else:
            # At the right edge, the label is on the left of its event.
            placed.append((max(column - len(label), 0), label + glyph))
    return placed


def _place_note(track: Track, scale: Axis, step: Step) -> tuple[int, str]:
    text = f"({describe_empty_arrival(track, step)})"
    start = 0
    if step.before is not None:
        start = round(scale.position_of(step.before)) + 2
    if start + len(text) > scale.length:
        start -= len(text) + 4
    return start, text


def _draw_advance(track: Track, scale: Axis, step: Step) -> list[str]:
    """Return the line that shows the advance of the watermark; none if no advance is visible."""
    if not track.watermark or step.after is None or step.after == step.before:
        return []
    line = _Line(scale.length)
    end = scale.length - 1
    begin = 0
    corner = "╌"
    if step.before is not None:
        begin = min(round(scale.position_of(step.before)), end)
        corner = "└"
    until = min(round(scale.position_of(step.after)), end)
    if begin == until:
        return []
    line.write_text(begin, "─" * (until - begin))
    line.write_text(begin, corner)
    line.write_text(until, "┐" if step.after < INFINITY else "▶")
    return [str(line)]


def _draw_windows(bars: Sequence[Bar], scale: Axis, gutter: int) -> list[str]:
    lines: list[str] = []
    for key, key_bars in group_by_key(bars).items():
        heading = key
        for lane in arrange_in_lanes(key_bars, lambda bar: _bar_extent(bar, scale)):
            for line in _draw_lane(lane, scale):
                lines.append(f"{heading:{gutter}}{line}")
                # Only the first line of a key has the key.
                heading = ""
    return lines


def _draw_lane(lane: Sequence[Bar], scale: Axis) -> list[_Line]:
    """Return the lines of bars side by side: the bars, then their captions and panes."""
    texts = [_to_lines(bar, scale) for bar in lane]
    height = 1 + max(map(len, texts))
    block = [_Line(scale.length) for _ in range(height)]
    for bar, bar_texts in zip(lane, texts, strict=True):
        begin, end = _bar_columns(bar, scale)
        block[0].write_text(begin, _draw_bar(bar, end - begin))
        for line, text in zip(block[1:], bar_texts, strict=False):
            line.write_text(_text_start(begin, text, scale), text)
    return block


def _to_lines(bar: Bar, scale: Axis) -> list[str]:
    texts = [bar.caption, *map(str, bar.panes)]
    return [truncate(text, scale.length) for text in texts]


def _bar_columns(bar: Bar, scale: Axis) -> tuple[int, int]:
    """Return the first column of a bar, and the column after it."""
    start, end = bar.span
    begin = min(round(scale.position_of(start)), scale.length - 2)
    return begin, max(round(scale.position_of(end)), begin + 2)


def _draw_bar(bar: Bar, length: int) -> str:
    opening = "<" if bar.span[0] == BEGINNING else "["
    closing = ">" if bar.span[1] == INFINITY else ")"
    filling = "=" if bar.published else "-"
    return opening + filling * (length - 2) + closing


def _text_start(begin: int, part: str, scale: Axis) -> int:
    return max(0, min(begin, scale.length - len(part)))


def _bar_extent(bar: Bar, scale: Axis) -> tuple[float, float]:
    begin, end = _bar_columns(bar, scale)
    extent_begin = begin
    extent_end = end
    for text in _to_lines(bar, scale):
        start = _text_start(begin, text, scale)
        extent_begin = min(extent_begin, start)
        extent_end = max(extent_end, start + len(text) + 1)
    return extent_begin, extent_end


def _draw_legend(drawn: Timeline) -> list[str]:
    parts = list[str]()
    for lateness, glyph in GLYPHS.items():
        if lateness in drawn.shown_lateness:
            parts.append(f"{glyph} {MEANING[lateness]}")
    if any(track.watermark for track in drawn.tracks):
        parts.append(f"{_WATERMARK} watermark")
    lines = ["", *wrap("   ".join(parts), WIDTH)]
    if drawn.bars:
        lines.append("[==) a published window, and its panes: TIMING #arrival: values")
    return lines
