"""Draw a scenario and its result as an SVG, for a file or a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.scenario.draw.axis import axis
from tidemark_streaming.scenario.draw.bars import Bar, by_key, lanes
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.draw.shapes import Picture
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

_WIDTH, _EDGE, _LETTER = 920.0, 20.0, 6.8
_ROW, _PANE, _BAR, _GAP, _HEADING = 20.0, 15.0, 20.0, 12.0, 26.0
_BOUNDS = 40
"""The maximum number of window bounds that are drawn as lines. More lines would hide the events."""


def svg(scenario: Scenario, result: Mapping[str, Any]) -> str:
    """Return the picture as a standalone document, for a light or dark page."""
    return _Figure(timeline(scenario, result)).draw()


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
        self.scale = axis(drawn.instants, drawn.watermarks, int(self.right - self.left))
        self.picture = Picture(drawn.title, drawn.about)

    def draw(self) -> str:
        about = wrap(self.drawn.about, 145)
        top = 58.0 + 15 * len(about) + 28
        bottom = begin = top
        tracks: list[tuple[Track, float, list[_Row]]] = []
        for track in self.drawn.tracks:
            rows = self._rows(track, bottom + (_HEADING if track.heading else 0))
            tracks.append((track, bottom, rows))
            bottom = rows[-1].bottom if rows else bottom
        self._axis(begin, bottom, [row for _, _, rows in tracks for row in rows])
        for track, above, rows in tracks:
            self._watermark(track, rows)
            if track.heading:
                self.picture.text("value", _EDGE, above + _HEADING - 6, track.heading)
        self.picture.text("title", _EDGE, 34, self.drawn.title)
        for number, line in enumerate(about):
            self.picture.text("about", _EDGE, 54 + 15 * number, line)
        for track, _, rows in tracks:
            for row in rows:
                self._arrival(track, row)
        return self.picture.finish(_WIDTH, self._legend(self._windows(bottom + 22)))

    def x(self, micros: int) -> float:
        return self.left + self.scale.at(micros)

    def _rows(self, track: Track, top: float) -> list[_Row]:
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
        for x, verdict, label in group_marks(marks, self._pixel):
            length = 14 + len(label) * _LETTER
            begin = x - 7 if x + length < self.right else x - length
            line = next((n for n, end in enumerate(ends) if end <= begin), len(ends))
            ends[line : line + 1] = [begin + length + 6]
            placed.append((x, line, verdict, label))
        return placed

    def _pixel(self, micros: int | None) -> int:
        return round(self.right - 8 if micros is None else self.x(micros))

    def _axis(self, top: float, bottom: float, rows: Sequence[_Row]) -> None:
        for row in rows:
            self.picture.lines("row", (_EDGE, row.bottom), (self.right, row.bottom))
        day = f", {self.scale.day}" if self.scale.day else ""
        self.picture.text("about", self.right, 34, f"event time{day} (UTC)", "end")
        for instant, label in self.scale.ticks(_LETTER):
            self.picture.lines("grid", (self.x(instant), top), (self.x(instant), bottom))
            middle = min(self.x(instant), self.right - len(label) * 3.2)
            self.picture.text("tick", middle, top - 8, label, "middle")
        for bound in self._bounds():
            self.picture.lines("bound", (self.x(bound), top), (self.x(bound), bottom))

    def _bounds(self) -> list[int]:
        """Return the window bounds to draw; none if they differ by key, or if they are too many."""
        bounds = {b for bar in self.drawn.bars or () for b in bar.span if self.scale.shows(b)}
        if self.drawn.aligned and len(bounds) <= _BOUNDS:
            return sorted(bounds)
        return []

    def _watermark(self, track: Track, rows: Sequence[_Row]) -> None:
        points: list[tuple[float, float]] = []
        for row in rows if track.watermark else ():
            before = row.step.before
            after = row.step.after
            if before is not None and before < INFINITY:
                points += [(self.x(before), row.top), (self.x(before), row.bottom)]
            if after is not None and after != before:
                points += [(self.left, row.bottom)] if before is None else []
                points.append((self.x(after), row.bottom))
        if points:
            back = [(self.left, points[-1][1]), (self.left, points[0][1])]
            self.picture.lines("behind", *points, *back)
            self.picture.lines("watermark", *points)

    def _arrival(self, track: Track, row: _Row) -> None:
        number, _, clock = row.clock.partition(" ")
        middle = row.top + _ROW / 2 + 3
        self.picture.text("number", _EDGE, middle + 4, number)
        self.picture.text("clock", self.left - 12, middle + 4, clock.strip(), "end")
        if not row.marks:
            before = row.step.before
            x = self.left if before is None else self.x(before)
            ends = x > (self.left + self.right) / 2
            text = note(track, row.step)
            self.picture.text("note", x + (-8 if ends else 8), middle + 4, text, _anchor(ends))
        for x, line, verdict, label in row.marks:
            y = middle + line * _ROW
            self.picture.mark(verdict, x, y)
            ends = x + 14 + len(label) * _LETTER >= self.right
            self.picture.text("label", x + (-9 if ends else 9), y + 4, label, _anchor(ends))

    def _windows(self, top: float) -> float:
        for key, key_bars in by_key(self.drawn.bars or ()).items():
            self.picture.text("key", _EDGE, top + 14, key)
            for lane in lanes(key_bars, self._extent):
                for bar in lane:
                    self._bar(bar, top)
                top += _BAR + _PANE * max(len(bar.panes) for bar in lane) + _GAP
        return top

    def _bar(self, bar: Bar, top: float) -> None:
        begin, end = self._sides(bar)
        state = "merged" if bar.published is None else "final" if bar.final else "open"
        kind = f"bar {bar.timing} {state}"
        self.picture.add("rect", kind, x=begin, y=top, width=end - begin, height=_BAR, rx=3.0)
        self.picture.text("value", self._inside(begin, bar.caption), top + 14, bar.caption)
        for number, pane in enumerate(bar.panes):
            y = top + _BAR + _PANE * (number + 1) - 2
            pane_values = str(pane).removeprefix(pane.timing)
            parts = [(f"{pane.timing}-text", pane.timing), ("", pane_values)]
            self.picture.parts("pane", self._inside(begin, str(pane)), y, parts)

    def _sides(self, bar: Bar) -> tuple[float, float]:
        begin = self.left if bar.span[0] == BEGINNING else self.x(bar.span[0])
        return begin, max(self.x(bar.span[1]) - 1.5, begin + 3)

    def _inside(self, begin: float, text: str) -> float:
        return max(_EDGE, min(begin + 6, self.right - len(text) * _LETTER))

    def _extent(self, bar: Bar) -> tuple[float, float]:
        begin, end = self._sides(bar)
        texts = [bar.caption, *map(str, bar.panes)]
        ends = [self._inside(begin, t) + len(t) * _LETTER + 4 for t in texts]
        return min(begin, *(self._inside(begin, t) for t in texts)), max(end, *ends)

    def _legend(self, top: float) -> float:
        x = _EDGE + 6
        y = top + 18
        for verdict in (v for v in MEANING if v in self.drawn.verdicts):
            self.picture.mark(verdict, x, y - 4)
            self.picture.text("legend", x + 11, y, MEANING[verdict])
            x += 34 + len(MEANING[verdict]) * 6
        if any(track.watermark for track in self.drawn.tracks):
            self.picture.lines("watermark", (x - 6, y - 4), (x + 12, y - 4))
            self.picture.text("legend", x + 18, y, "watermark")
        if self.drawn.bars is not None:
            text = "bars: published windows, with their panes and the arrival that fired each"
            self.picture.text("legend", self.right, y, text, "end")
        return y + 20


def _anchor(ends: bool) -> str:
    return "end" if ends else "start"
