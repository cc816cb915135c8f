"""The watermarks of derived sources, in plain Python."""

from collections.abc import Mapping, Sequence
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
    """

    rows: Sequence[Row]
    before: int | None
    after: int | None


def derived_watermarks(
    steps: Sequence[tuple[int, int]], bases: Sequence[Sequence[BaseArrival]], back: Sequence[int]
) -> list[int | None]:
    """Return the watermark of a derived source after each step."""
    reached: list[int | None] = [None] * len(bases)
    found, last = list[int | None](), None
    for side, number in steps:
        reached[side] = bases[side][number].after
        marks = [m if m in (None, INFINITY) else m - b for m, b in zip(reached, back, strict=True)]
        if None not in marks:
            least = min(marks)  # type: ignore[type-var]
            last = least if last is None else max(last, least)
        found.append(last)
    return found
