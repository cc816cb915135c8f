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

_WIDTH, _EDGE, _LETTER = 920.0, 20.0, 6.8
_ROW, _PANE, _BAR, _GAP, _HEADING = 20.0, 15.0, 20.0, 12.0, 26.0
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
        bottom = begin = top
        tracks: list[tuple[Track, float, list[_Row]]] = []
        for track in self.drawn.tracks:
            rows = self._place_rows(track, bottom + (_HEADING if track.heading else 0))
            tracks.append((track, bottom, rows))
            bottom = rows[-1].bottom if rows else bottom
        self._draw_axis(begin, bottom, [row for _, _, rows in tracks for row in rows])
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
        return self.picture.finish_document(
            _WIDTH, self._draw_legend(self._draw_windows(bottom + 22))
        )

    def x_of(self, micros: int) -> float:
        return self.left + self.scale.position_of(micros)

    def _place_rows(self, track: Track, top: float) -> list[_Row]:
        rows: list[_Row] = []
        for step, clock, marks in zip(track.steps, track.clocks, track.marks, strict=True):
            placed = self._place_marks(marks)
            lines = max((line for _, line, _, _ in placed), default=0) + 1
            rows.append(_Row(step, clock, top, top + lines * _ROW + 6, placed))
            top = rows[-1].bottom
        return rows

    def _place_marks(self, marks: Sequence[Mark]) -> list[tuple[float, int, str, str]]:
        """Return the position, line, lateness and label of each event.

        Each event is in the first line in which its label overlaps no other label.
        """
        ends: list[float] = []
        placed = []
        for x, verdict, label in group_marks(marks, self._pixel_of):
            length = 14 + len(label) * _LETTER
            begin = x - 7 if x + length < self.right else x - length
            line = next((n for n, end in enumerate(ends) if end <= begin), len(ends))
            ends[line : line + 1] = [begin + length + 6]
            placed.append((x, line, verdict, label))
        return placed

    def _pixel_of(self, micros: int | None) -> int:
        return round(self.right - 8 if micros is None else self.x_of(micros))

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
        bounds = {b for bar in self.drawn.bars or () for b in bar.span if self.scale.is_visible(b)}
        if self.drawn.aligned and len(bounds) <= _BOUNDS:
            return sorted(bounds)
        return []

    def _draw_watermark(self, track: Track, rows: Sequence[_Row]) -> None:
        points: list[tuple[float, float]] = []
        for row in rows if track.watermark else ():
            before = row.step.before
            after = row.step.after
            if before is not None and before < INFINITY:
                points += [(self.x_of(before), row.top), (self.x_of(before), row.bottom)]
            if after is not None and after != before:
                points += [(self.left, row.bottom)] if before is None else []
                points.append((self.x_of(after), row.bottom))
        if points:
            back = [(self.left, points[-1][1]), (self.left, points[0][1])]
            self.picture.add_line("behind", *points, *back)
            self.picture.add_line("watermark", *points)

    def _draw_arrival(self, track: Track, row: _Row) -> None:
        number, _, clock = row.clock.partition(" ")
        middle = row.top + _ROW / 2 + 3
        self.picture.add_text("number", _EDGE, middle + 4, number)
        self.picture.add_text("clock", self.left - 12, middle + 4, clock.strip(), "end")
        if not row.marks:
            before = row.step.before
            x = self.left if before is None else self.x_of(before)
            ends = x > (self.left + self.right) / 2
            text = describe_empty_arrival(track, row.step)
            self.picture.add_text(
                "note", x + (-8 if ends else 8), middle + 4, text, _choose_anchor(ends)
            )
        for x, line, verdict, label in row.marks:
            y = middle + line * _ROW
            self.picture.add_mark(verdict, x, y)
            ends = x + 14 + len(label) * _LETTER >= self.right
            self.picture.add_text(
                "label", x + (-9 if ends else 9), y + 4, label, _choose_anchor(ends)
            )

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
        state = "merged" if bar.published is None else "final" if bar.final else "open"
        kind = f"bar {bar.timing} {state}"
        self.picture.add_shape("rect", kind, x=begin, y=top, width=end - begin, height=_BAR, rx=3.0)
        self.picture.add_text("value", self._text_start(begin, bar.caption), top + 14, bar.caption)
        for number, pane in enumerate(bar.panes):
            y = top + _BAR + _PANE * (number + 1) - 2
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
        texts = [bar.caption, *map(str, bar.panes)]
        ends = [self._text_start(begin, t) + len(t) * _LETTER + 4 for t in texts]
        return min(begin, *(self._text_start(begin, t) for t in texts)), max(end, *ends)

    def _draw_legend(self, top: float) -> float:
        x = _EDGE + 6
        y = top + 18
        for verdict in (v for v in MEANING if v in self.drawn.shown_lateness):
            self.picture.add_mark(verdict, x, y - 4)
            self.picture.add_text("legend", x + 11, y, MEANING[verdict])
            x += 34 + len(MEANING[verdict]) * 6
        if any(track.watermark for track in self.drawn.tracks):
            self.picture.add_line("watermark", (x - 6, y - 4), (x + 12, y - 4))
            self.picture.add_text("legend", x + 18, y, "watermark")
        if self.drawn.bars is not None:
            text = "bars: published windows, with their panes and the arrival that fired each"
            self.picture.add_text("legend", self.right, y, text, "end")
        return y + 20


def _choose_anchor(ends: bool) -> str:
    return "end" if ends else "start"
