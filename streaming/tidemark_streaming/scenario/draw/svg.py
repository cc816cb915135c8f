"""Draw a scenario and its result as an SVG, for a file or a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.scenario.draw.axis import create_axis
from tidemark_streaming.scenario.draw.bars import Bar, arrange_in_lanes, group_by_key
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.draw.shapes import Picture
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

_WIDTH = 920.0
_EDGE = 20.0
_LETTER = 6.8
"""The width of a letter."""
_ROW = 20.0
_PANE = 15.0
_BAR = 20.0
_GAP = 12.0
_HEADING = 26.0
_BOUNDS = 40
"""The maximum number of window bounds that are drawn as lines. More lines would hide the events."""


def draw_svg(scenario: Scenario, result: Mapping[str, Any]) -> str:
    """Return the picture as a standalone document, for a light or dark page."""
    return _Figure(create_timeline(scenario, result)).draw()


@dataclass(frozen=True)
class _Row:
    """An arrival, drawn from the height `top` to `bottom`.

    Args:
        marks: the position, line, lateness and label of each event.
    """

    step: Step
    clock: str
    top: float
    bottom: float
    marks: list[tuple[float, int, str, str]]


class _Figure:
    def __init__(self, drawn: Timeline) -> None:
        self.drawn = drawn
        self.left = _EDGE + drawn.gutter * _LETTER + 14
        self.right = _WIDTH - _EDGE
        self.scale = create_axis(drawn.instants, drawn.watermarks, int(self.right - self.left))
        self.picture = Picture(drawn.title, drawn.about)

    def draw(self) -> str:
        about = wrap(self.drawn.about, 145)
        top = 58.0 + 15 * len(about) + 28
        bottom = top
        tracks: list[tuple[Track, float, list[_Row]]] = []
        all_rows: list[_Row] = []
        for track in self.drawn.tracks:
            first_top = bottom + _HEADING if track.heading else bottom
            rows = self._place_rows(track, first_top)
            tracks.append((track, bottom, rows))
            all_rows += rows
            if rows:
                bottom = rows[-1].bottom
        # Later shapes cover earlier ones: the events are above the watermark and the grid.
        self._draw_axis(top, bottom, all_rows)
        for track, above, rows in tracks:
            self._draw_watermark(track, rows)
            if track.heading:
                self.picture.add_text("value", _EDGE, above + _HEADING - 6, track.heading)
        self.picture.add_text("title", _EDGE, 34, self.drawn.title)
        for number, line in enumerate(about):
            self.picture.add_text("about", _EDGE, 54 + 15 * number, line)
        for track, _, rows in tracks:
            for row in rows:
                self._draw_arrival(track, row)
        windows_bottom = self._draw_windows(bottom + 22)
        height = self._draw_legend(windows_bottom)
        return self.picture.finish_document(_WIDTH, height)

    def x_of(self, micros: int) -> float:
        return self.left + self.scale.position_of(micros)

    def _place_rows(self, track: Track, top: float) -> list[_Row]:
        rows: list[_Row] = []
        for step, clock, marks in zip(track.steps, track.clocks, track.marks, strict=True):
            placed = self._place_marks(marks)
            line_count = 1
            for _, line, _, _ in placed:
                line_count = max(line_count, line + 1)
            bottom = top + line_count * _ROW + 6
            rows.append(_Row(step, clock, top, bottom, placed))
            top = bottom
        return rows

    def _place_marks(self, marks: Sequence[Mark]) -> list[tuple[float, int, str, str]]:
        """Return the position, line, lateness and label of each event.

        Each event is in the first line in which its label overlaps no other label.
        """
        # The end of the last label in each line.
        ends: list[float] = []
        placed: list[tuple[float, int, str, str]] = []
        for x, lateness, label in group_marks(marks, self._pixel_of):
            length = 14 + len(label) * _LETTER
            begin = x - 7 if x + length < self.right else x - length
            line = 0
            while line < len(ends) and ends[line] > begin:
                line += 1
            ends[line : line + 1] = [begin + length + 6]
            placed.append((x, line, lateness, label))
        return placed

    def _pixel_of(self, micros: int | None) -> int:
        if micros is None:
            return round(self.right - 8)
        return round(self.x_of(micros))

    def _draw_axis(self, top: float, bottom: float, rows: Sequence[_Row]) -> None:
        for row in rows:
            self.picture.add_line("row", (_EDGE, row.bottom), (self.right, row.bottom))
        day = f", {self.scale.single_day}" if self.scale.single_day else ""
        self.picture.add_text("about", self.right, 34, f"event time{day} (UTC)", "end")
        for instant, label in self.scale.choose_ticks(_LETTER):
            self.picture.add_line("grid", (self.x_of(instant), top), (self.x_of(instant), bottom))
            middle = min(self.x_of(instant), self.right - len(label) * 3.2)
            self.picture.add_text("tick", middle, top - 8, label, "middle")
        for bound in self._list_bounds():
            self.picture.add_line("bound", (self.x_of(bound), top), (self.x_of(bound), bottom))

    def _list_bounds(self) -> list[int]:
        """Return the window bounds to draw; none if they differ by key, or if they are too many."""
        if not self.drawn.aligned:
            return []
        bounds = set[int]()
        for bar in self.drawn.bars or ():
            bounds.update(filter(self.scale.is_visible, bar.span))
        if len(bounds) > _BOUNDS:
            return []
        return sorted(bounds)

    def _draw_watermark(self, track: Track, rows: Sequence[_Row]) -> None:
        if not track.watermark:
            return
        points: list[tuple[float, float]] = []
        for row in rows:
            before = row.step.before
            after = row.step.after
            if before is not None and before < INFINITY:
                x = self.x_of(before)
                points += [(x, row.top), (x, row.bottom)]
            if after is not None and after != before:
                if before is None:
                    points.append((self.left, row.bottom))
                points.append((self.x_of(after), row.bottom))
        if points:
            area = [*points, (self.left, points[-1][1]), (self.left, points[0][1])]
            self.picture.add_line("behind", *area)
            self.picture.add_line("watermark", *points)

    def _draw_arrival(self, track: Track, row: _Row) -> None:
        number, _, clock = row.clock.partition(" ")
        middle = row.top + _ROW / 2 + 3
        self.picture.add_text("number", _EDGE, middle + 4, number)
        self.picture.add_text("clock", self.left - 12, middle + 4, clock.strip(), "end")
        if not row.marks:
            self._draw_note(track, row, middle)
        for x, line, lateness, label in row.marks:
            y = middle + line * _ROW
            self.picture.add_mark(lateness, x, y)
            is_at_edge = x + 14 + len(label) * _LETTER >= self.right
            self._add_text_beside("label", x, y + 4, label, distance=9, to_left=is_at_edge)

    def _draw_note(self, track: Track, row: _Row, middle: float) -> None:
        before = row.step.before
        x = self.left if before is None else self.x_of(before)
        text = describe_empty_arrival(track, row.step)
        is_right_half = x > (self.left + self.right) / 2
        self._add_text_beside("note", x, middle + 4, text, distance=8, to_left=is_right_half)

    def _add_text_beside(
        self, kind: str, x: float, y: float, text: str, *, distance: float, to_left: bool
    ) -> None:
        if to_left:
            self.picture.add_text(kind, x - distance, y, text, "end")
        else:
            self.picture.add_text(kind, x + distance, y, text, "start")

    def _draw_windows(self, top: float) -> float:
        for key, key_bars in group_by_key(self.drawn.bars or ()).items():
            self.picture.add_text("key", _EDGE, top + 14, key)
            for lane in arrange_in_lanes(key_bars, self._bar_extent):
                for bar in lane:
                    self._draw_bar(bar, top)
                top += _BAR + _PANE * max(len(bar.panes) for bar in lane) + _GAP
        return top

    def _draw_bar(self, bar: Bar, top: float) -> None:
        begin, end = self._bar_sides(bar)
        kind = f"bar {bar.timing} {_describe_state(bar)}"
        self.picture.add_shape("rect", kind, x=begin, y=top, width=end - begin, height=_BAR, rx=3.0)
        caption_start = self._text_start(begin, bar.caption)
        self.picture.add_text("value", caption_start, top + 14, bar.caption)
        y = top + _BAR - 2
        for pane in bar.panes:
            y += _PANE
            pane_values = str(pane).removeprefix(pane.timing)
            parts = [(f"{pane.timing}-text", pane.timing), ("", pane_values)]
            self.picture.add_text_parts("pane", self._text_start(begin, str(pane)), y, parts)

    def _bar_sides(self, bar: Bar) -> tuple[float, float]:
        begin = self.left if bar.span[0] == BEGINNING else self.x_of(bar.span[0])
        return begin, max(self.x_of(bar.span[1]) - 1.5, begin + 3)

    def _text_start(self, begin: float, text: str) -> float:
        return max(_EDGE, min(begin + 6, self.right - len(text) * _LETTER))

    def _bar_extent(self, bar: Bar) -> tuple[float, float]:
        begin, end = self._bar_sides(bar)
        extent_begin = begin
        extent_end = end
        for text in (bar.caption, *map(str, bar.panes)):
            start = self._text_start(begin, text)
            extent_begin = min(extent_begin, start)
            extent_end = max(extent_end, start + len(text) * _LETTER + 4)
        return extent_begin, extent_end

    def _draw_legend(self, top: float) -> float:
        x = _EDGE + 6
        y = top + 18
        for lateness, meaning in MEANING.items():
            if lateness in self.drawn.shown_lateness:
                self.picture.add_mark(lateness, x, y - 4)
                self.picture.add_text("legend", x + 11, y, meaning)
                x += 34 + len(meaning) * 6
        if any(track.watermark for track in self.drawn.tracks):
            self.picture.add_line("watermark", (x - 6, y - 4), (x + 12, y - 4))
            self.picture.add_text("legend", x + 18, y, "watermark")
        if self.drawn.bars is not None:
            text = "bars: published windows, with their panes and the arrival that fired each"
            self.picture.add_text("legend", self.right, y, text, "end")
        return y + 20


def _describe_state(bar: Bar) -> str:
    """Return the CSS class of a window's state."""
    if bar.published is None:
        return "merged"
    return "final" if bar.final else "open"
