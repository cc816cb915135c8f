"""An oracle for the windows of an asset whose definition may have changed, in plain Python.

Each event is processed by the definition that was in force at its arrival's run. A commit that
recomputes windows (a backfill, a correction, a promotion) processes their earlier events again.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.graph.case import SECOND, Part
from helpers.graph.definitions import keeps

Bounds = tuple[int, int]
"""A window: its start and its end, in microseconds."""
Key = tuple[Any, ...]
Place = tuple[Bounds, Key]
"""A window, and the values of its keys."""
Windows = Sequence[Bounds] | frozenset[Place] | None
"""Some windows: ranges of their starts, or the windows with their keys; None for all."""
Rows = dict[Place, dict[str, Any]]
"""The rows of an asset, by window and keys."""


@dataclass(frozen=True)
class Event:
    """An event of an asset's source. Times are in microseconds; None is minus infinity.

    Args:
        watermark: the watermark before the event's arrival.
        sign: -1 for a retraction.
    """

    arrival: int
    time: int | None
    key: Key
    value: int | None
    watermark: int | None
    sign: int = 1


@dataclass(frozen=True)
class Recompute:
    """A commit that recomputed windows.

    Args:
        commit: the number of the commit.
        through: the last arrival that it counted.
        windows: the windows that it recomputed.
        node: the definition that it used.
        late: true if it counted too-late events.
    """

    commit: int
    through: int
    windows: Windows
    node: Part
    late: bool

    def contains(self, window: Bounds, key: Key) -> bool:
        if self.windows is None:
            return True
        if isinstance(self.windows, frozenset):
            return (window, key) in self.windows
        return any(first <= window[0] < end for first, end in self.windows)


@dataclass
class AssetHistory:
    """How the tables of an asset were made.

    Args:
        processed: the definition that processed each arrival.
        recomputes: the commits that recomputed windows, in order.
    """

    processed: dict[int, Part] = field(default_factory=dict[int, Part])
    recomputes: list[Recompute] = field(default_factory=list[Recompute])

    def admits(self, event: Event, window: Bounds) -> bool:
        """Return whether a window counts an event."""
        node, late = self.processed.get(event.arrival), False
        for each in self.recomputes:
            if event.arrival <= each.through and each.contains(window, event.key):
                node, late = each.node, each.late
        if node is None or not keeps(node["function"], event.value):
            return False
        end = window[1] + node["lateness"] * SECOND
        return late or event.watermark is None or event.watermark < end

    def latenesses(self) -> list[int]:
        """Return each lateness that was in force, in microseconds."""
        nodes = [*self.processed.values(), *(each.node for each in self.recomputes)]
        return [node["lateness"] * SECOND for node in nodes]


def windows_of(node: Part, time: int) -> list[Bounds]:
    """Return the windows of an event. An event of a session has a window of its own."""
    if "session" in node:
        return [(time, time + node["session"] * SECOND)]
    size = node["size"] * SECOND
    slide = node.get("slide", node["size"]) * SECOND
    newest = time - time % slide
    return [(start, start + size) for start in range(newest, time - size, -slide)]


def lacking(history: AssetHistory, node: Part, events: Sequence[Event]) -> frozenset[Place]:
    """Return the windows, with their keys, that lack too-late events."""
    found = set[Place]()
    for event in events:
        for window in [] if event.time is None else windows_of(node, event.time):
            if not history.admits(event, window) and keeps(node["function"], event.value):
                found.add((window, event.key))
    return frozenset(found)


def compute(
    node: Part,
    events: Sequence[Event],
    admits: Callable[[Event, Bounds], bool],
    through: Mapping[Bounds | None, int],
    reached: Mapping[int, int | None],
    latenesses: Sequence[int],
) -> Rows:
    """Return the rows of an asset, with `final`, which is None if either value is right.

    The result also has the sessions that did not fire yet, with `fired`, which is false.

    Args:
        latenesses: each allowed lateness that was in force, in microseconds.
        admits: returns whether a window counts an event.
        through: the last arrival of each window, by ranges of window starts; None for the others.
        reached: the watermark after each arrival.
    """
    members = defaultdict[Place, list[Event]](list)
    for event in events:
        for window in [] if event.time is None else windows_of(node, event.time):
            if event.arrival <= last_arrival(through, window) and admits(event, window):
                members[window, event.key].append(event)
    if "session" in node:
        return _sessions(node, members, through, reached, latenesses)
    rows = Rows()
    for (window, key), counted in members.items():
        watermark = reached.get(last_arrival(through, window))
        if watermark is not None and window[1] <= watermark:
            final = _is_final(window, watermark, latenesses)
            rows[window, key] = {**_row(node, counted), "final": final, "fired": True}
    return rows


def _is_final(window: Bounds, watermark: int, latenesses: Sequence[int]) -> bool | None:
    """Return whether a window is final; None if the latenesses in force decide differently."""
    if watermark >= window[1] + max(latenesses):
        return True
    return False if watermark < window[1] + min(latenesses) else None


def _sessions(
    node: Part,
    members: Mapping[Place, list[Event]],
    through: Mapping[Bounds | None, int],
    reached: Mapping[int, int | None],
    latenesses: Sequence[int],
) -> Rows:
    """Return the sessions of events, of which those that overlap or touch are one."""
    rows = Rows()
    for key in {key for _, key in members}:
        merged = list[list[Bounds]]()
        for window in sorted(window for window, other in members if other == key):
            if merged and window[0] <= max(end for _, end in merged[-1]):
                merged[-1].append(window)
            else:
                merged.append([window])
        for windows in merged:
            session = windows[0][0], max(end for _, end in windows)
            counted = [event for window in windows for event in members[window, key]]
            marks = {reached.get(last_arrival(through, window)) for window in windows}
            (watermark,) = marks if len(marks) == 1 else (None,)
            fired = watermark is not None and session[1] <= watermark
            final = _is_final(session, watermark, latenesses) if watermark is not None else None
            rows[session, key] = {**_row(node, counted), "final": final, "fired": fired}
    return rows


def last_arrival(through: Mapping[Bounds | None, int], window: Bounds) -> int:
    """Return the last arrival that a window counts."""
    last = through[None]
    for bounds, arrival in through.items():
        if bounds is not None and bounds[0] <= window[0] < bounds[1]:
            last = arrival
    return last


def _row(node: Part, events: Sequence[Event]) -> dict[str, Any]:
    some = [e for e in events if e.value is not None]
    total = sum(e.sign * e.value for e in some if e.value is not None)
    row = {
        "n": sum(e.sign for e in events),
        "total": total if sum(e.sign for e in some) else None,
    }
    if node.get("greatest"):
        row["greatest"] = max((e.value for e in some if e.value is not None), default=None)
    return row
