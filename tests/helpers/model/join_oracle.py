"""An oracle for derived sources: the definition over whole logs, in plain Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import INFINITY

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BaseArrival:
    """An arrival of a base.

    Args:
        rows: its rows; `t` is the event time in microseconds or None, `k` the key, `id` the rest.
        before, after: the watermark before it and after it.
        silence: for a heartbeat, how long its base has been silent, in microseconds.
    """

    rows: Sequence[Row]
    before: int | None
    after: int | None
    silence: int | None = None


@dataclass(frozen=True)
class _Taken:
    row: Row
    step: int
    side: int
    place: tuple[int, int]
    before: int | None


def join_by_definition(
    steps: Sequence[tuple[int, int]],
    bases: Sequence[Sequence[BaseArrival]],
    *,
    reach: Callable[[int], tuple[int, int]],
    how: str,
    lateness: int | None,
    where: Callable[[str, str], bool],
    idle: int | None = None,
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows of a join, and those that take no part.

    A row of the join is the step, the `id` of the left row and that of the right one, either None.
    A row without part is the step, its side, its `id`, and the reason.

    Args:
        steps: for each step, the side and the number of the base's arrival.
        reach: the first and the last event time of right rows for a left event time.
        where: the condition on the `id` of both rows.
        idle: the silence from which a base does not hold back the other.
    """
    marks = _effective_watermarks(steps, bases, idle)
    before = [[None] * len(bases), *marks]
    taken = [
        _Taken(row, n, side, (number, place), before[n][side])
        for n, (side, number) in enumerate(steps)
        for place, row in enumerate(bases[side][number].rows)
    ]
    parts, unjoined = list[_Taken](), list[tuple[Any, ...]]()
    for each in taken:
        time = each.row["t"]
        if time is None:
            unjoined.append((each.step, each.side, each.row["id"], "no_event_time"))
        elif lateness is not None and each.before is not None and time < each.before - lateness:
            unjoined.append((each.step, each.side, each.row["id"], "too_late"))
        else:
            parts.append(each)
    sides = [[p for p in parts if p.side == side] for side in (0, 1)]
    joined, paired = list[tuple[Any, ...]](), set[tuple[int, tuple[int, int]]]()
    for left in sides[0]:
        first, last = reach(left.row["t"])
        for right in sides[1]:
            equal = left.row["k"] is not None and left.row["k"] == right.row["k"]
            near = equal and first <= right.row["t"] <= last
            if near and where(left.row["id"], right.row["id"]):
                joined.append((max(left.step, right.step), left.row["id"], right.row["id"]))
                paired |= {(0, left.place), (1, right.place)}
    for side in (0, 1)[: {"inner": 0, "left": 1, "full": 2}[how]]:
        for row in (p for p in sides[side] if (side, p.place) not in paired):
            time = row.row["t"]
            end = reach(time)[1] if side == 0 else _near(time, reach)[-1]
            past = (n for n, each in enumerate(marks) if _is_past(each[1 - side], end, lateness))
            step = next(past, None)
            if step is not None:
                ids = (row.row["id"], None) if side == 0 else (None, row.row["id"])
                joined.append((max(step, row.step), *ids))
    return joined, unjoined


def _near(time: int, reach: Callable[[int], tuple[int, int]]) -> list[int]:
    """Return the left event times, whole seconds, with which a right event time can pair."""
    around = range(time - 60_000_000, time + 61_000_000, 1_000_000)
    return [t for t in around if reach(t)[0] <= time <= reach(t)[1]]


def _is_past(mark: int | None, end: int, lateness: int | None) -> bool:
    return mark is not None and mark > end + (lateness or 0)


def _effective_watermarks(
    steps: Sequence[tuple[int, int]], bases: Sequence[Sequence[BaseArrival]], idle: int | None
) -> list[list[int | None]]:
    """Return the effective watermark of each base after each step.

    A heartbeat of a base that has been silent for `idle` raises it to the least of the others that
    have not ended.
    """
    marks: list[int | None] = [None] * len(bases)
    found = list[list[int | None]]()
    for side, number in steps:
        arrival = bases[side][number]
        known = [mark for mark in (marks[side], arrival.after) if mark is not None]
        if idle is not None and arrival.silence is not None and arrival.silence >= idle:
            others = [m for n, m in enumerate(marks) if n != side and m != INFINITY]
            if others and None not in others:
                known.append(min(others))  # type: ignore[type-var, arg-type]
        marks = [max(known, default=None) if n == side else m for n, m in enumerate(marks)]
        found.append(marks)
    return found


def derived_watermarks(
    steps: Sequence[tuple[int, int]],
    bases: Sequence[Sequence[BaseArrival]],
    back: Sequence[int],
    idle: int | None = None,
) -> list[int | None]:
    """Return the watermark of a derived source after each step."""
    found, last = list[int | None](), None
    for reached in _effective_watermarks(steps, bases, idle):
        marks = [m if m in (None, INFINITY) else m - b for m, b in zip(reached, back, strict=True)]
        if None not in marks:
            least = min(marks)  # type: ignore[type-var]
            last = least if last is None else max(last, least)
        found.append(last)
    return found
