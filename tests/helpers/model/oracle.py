"""An oracle: the expected result of a scenario, computed event by event in plain Python.

It uses nothing of Tidemark. It keeps every window as an object, processes the scenario's items in
order and fires. It is slow on purpose, and easy to read.

Time is two numbers of microseconds: the watermark W, -infinity at first, and the processing clock.
A `clock` item only moves the clock. If the source has heartbeats, it is one: once the clock is
`idle` past the last rows, W becomes at least the clock - bound. A `watermark` item is an arrival
without rows. After the last item W becomes +infinity, unless the scenario stays open.

An arrival is processed in this order, and all its rows are classified against the W before it:

1. Each row is classified for each of its windows: on time while W < end, late while W < end +
   lateness. After that it is too late and becomes a row of `late`, as does a row without an event
   time. For a session the row is classified by its own [t, t + gap). With `deduplicate`, a row is
   skipped if an earlier row has the same ID and its event time is at most `within` away.
2. A counted row joins its window. A session merges with all sessions of the key that it overlaps
   or touches, and continues from the highest of their pane indexes. A count trigger is evaluated
   after each row, on the pending rows of the window.
3. W advances, and never goes back. Windows with new rows fire by an `arrival` trigger: EARLY if W
   is still before the end, LATE if it was already past it. Then windows whose end W has passed
   fire ON_TIME, even without new rows. Then windows that became final fire their pending rows LATE.

An interval trigger fires pending rows, EARLY or LATE by W, at the multiples of the interval that
the clock passes or reaches. Rows that arrive at such an instant wait for the next.

A firing is a pane of the pending rows (discarding) or of all rows that ever fired (accumulating).
Retracting emits first, with the same index and timing, all rows that the firing replaces: those of
the window, or of the sessions that it merged, which stay published until then. A published row
includes all fired rows in every accumulation mode.
"""

import math
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from zoneinfo import ZoneInfo

Value = Any
"""A column's value, in the type that the scenario names."""
Row = dict[str, Value]
Key = tuple[Value, ...]
Instant = float
"""Whole microseconds since the epoch, or an infinity. Python compares the two exactly."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLY, ON_TIME, LATE = "EARLY", "ON_TIME", "LATE"


@dataclass(frozen=True)
class Event:
    """A row counted in a window: `late` is its class there, `number` its overall position."""

    at: int
    number: int
    row: Row
    late: bool


@dataclass(frozen=True)
class Pane:
    """The result of one firing."""

    start: Instant
    end: Instant
    key: Key
    pane: int
    timing: str
    last: bool
    late_events: int
    values: Row
    retraction: bool = False


@dataclass(eq=False)
class Window:
    """One window of one key.

    `published` are the panes whose values the published table shows for it: none before the first
    firing, then the newest, or those of all sessions that it merged since.
    """

    start: Instant
    end: Instant
    key: Key
    pane: int
    pending: list[Event]
    fired: list[Event]
    published: list[Pane]


class Stream:
    def __init__(self, scenario: Row) -> None:
        source, transform = scenario["source"], scenario["transform"]
        self.event_time: str = source["event_time"]
        self.columns: dict[str, str] = source["columns"]
        self.strategy: Row = source["watermark"]
        self.heartbeats = "heartbeat" in source
        self.window: Row = transform["window"]
        self.keys: list[str] = transform.get("keys") or []
        self.lateness = duration(transform.get("allowed_lateness", "0 seconds"))
        trigger: Row = transform.get("trigger") or {}
        self.early: Row = trigger.get("early") or {}
        self.late: Row = trigger.get("late") or {"arrival": {}}
        self.accumulation: str = transform.get("accumulation", "accumulating")
        self.aggregates: Row = transform["aggregates"]
        self.unique: Row = transform.get("deduplicate") or {}
        self.seen: dict[Key, list[int]] = {}
        self.watermark: Instant = -math.inf
        self.newest: Instant = -math.inf
        self.parts: dict[object, tuple[int, int]] = {}
        self.clock = micros(moment(scenario.get("clock_start", EPOCH)))
        self.silent_since = self.clock
        self.arrived = 0
        self.windows: list[Window] = []
        self.panes: list[Pane] = []
        self.too_late: list[tuple[Instant, Instant, Key, Row]] = []

    def tick(self, by: int) -> None:
        before, self.clock = self.clock, self.clock + by
        for window in self.windows:
            timing, trigger = self.phase(window)
            every = duration(trigger.get("every", "0 seconds"))
            # No row arrives between two multiples of one move, so the first fires all rows.
            if every and self.clock // every > before // every and window.pending:
                self.fire(window, timing)

    def beat(self) -> None:
        """Let a heartbeat move W, if the source has been silent for long enough."""
        ((strategy, spec),) = self.strategy.items()
        spec = {"bound": "0 seconds"} | (spec if isinstance(spec, dict) else {})
        idle = spec.get("idle", "5 minutes" if strategy == "per_partition" else None)
        if not self.heartbeats or idle is None or self.watermark == -math.inf:
            return
        if self.clock - self.silent_since >= duration(idle):
            self.advance(self.clock - duration(spec["bound"]))

    def phase(self, window: Window) -> tuple[str, Row]:
        """Return the timing of a firing before W advances, and its trigger."""
        return (EARLY, self.early) if self.watermark < window.end else (LATE, self.late)

    def arrive(self, rows: list[Row]) -> None:
        for given in rows:
            row = {name: typed(kind, given.get(name)) for name, kind in self.columns.items()}
            self.judge(row)
        if rows:
            self.silent_since = self.clock
        ((strategy, bound),) = self.strategy.items()
        if strategy == "bounded_out_of_orderness":
            length = bound["bound"] if isinstance(bound, dict) else bound
            self.advance(self.newest - duration(length))
        elif strategy == "monotonous":
            self.advance(self.newest)
        elif strategy == "per_partition":
            self.advance(max(self.watermark, self.slowest(bound)))
        else:
            self.advance(self.watermark)

    def judge(self, row: Row) -> None:
        self.arrived += 1
        if not believed(row[self.event_time]):
            self.refuse(-math.inf, -math.inf, row, None)
            return
        at = micros(row[self.event_time])
        self.newest = max(self.newest, at)
        if of := self.strategy.get("per_partition"):
            part = row[of["column"]]
            self.parts[part] = max(at, self.parts.get(part, (at, 0))[0]), self.clock
        if self.unique and self.again(row, at):
            return
        for start, end in windows_of(self.window, at):
            if "global" not in self.window and not (start >= FIRST and end <= LAST):
                known = self.watermark > -math.inf
                lag = (self.watermark - at) / 1_000_000 if known else None
                self.refuse(-math.inf, -math.inf, row, lag)
            elif self.watermark < end + self.lateness:
                late = self.watermark >= end
                self.join(start, end, self.key(row), Event(at, self.arrived, row, late))
            else:
                self.refuse(start, end, row, (self.watermark - at) / 1_000_000)

    def slowest(self, of: Row) -> Instant:
        """Return the minimum over active partitions of their newest time, minus the bound."""
        idle = duration(of.get("idle", "5 minutes"))
        active = [newest for newest, heard in self.parts.values() if self.clock - heard < idle]
        known = [newest for newest, _ in self.parts.values()]
        return (min(active) if active else max(known, default=-math.inf)) - duration(of["bound"])

    def again(self, row: Row, at: int) -> bool:
        by = self.unique["by"]
        told = tuple(row[name] for name in (by if isinstance(by, list) else [by]))
        if None in told:
            return False
        before = self.seen.setdefault(told, [])
        before.append(at)
        return any(abs(at - t) <= duration(self.unique["within"]) for t in before[:-1])

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def refuse(self, start: Instant, end: Instant, row: Row, lag: float | None) -> None:
        missed = {"window_start": text(start), "window_end": text(end)}
        facts = {"watermark": text(self.watermark), "lateness_seconds": lag}
        self.too_late.append((start, end, self.key(row), row | missed | facts))

    def join(self, start: Instant, end: Instant, key: Key, event: Event) -> None:
        if "session" in self.window:
            parts = [w for w in self.windows if w.key == key and w.start <= end and start <= w.end]
        else:
            parts = [w for w in self.windows if (w.start, w.end, w.key) == (start, end, key)]
        joined = Window(
            start=min([start, *(w.start for w in parts)]),
            end=max([end, *(w.end for w in parts)]),
            key=key,
            pane=max([-1, *(w.pane for w in parts)]),
            pending=[*(e for w in parts for e in w.pending), event],
            fired=[e for w in parts for e in w.fired],
            published=[p for w in parts for p in w.published],
        )
        self.windows = [w for w in self.windows if w not in parts] + [joined]
        timing, trigger = self.phase(joined)
        if len(joined.pending) >= trigger.get("count", math.inf):
            self.fire(joined, timing)

    def advance(self, to: Instant) -> None:
        before, self.watermark = self.watermark, max(self.watermark, to)
        for w in self.windows:
            # With an `arrival` trigger, only rows of this arrival are pending.
            if w.pending and self.watermark < w.end and "arrival" in self.early:
                self.fire(w, EARLY)
            elif w.pending and before >= w.end and "arrival" in self.late:
                self.fire(w, LATE)
        for w in self.windows:
            # The window ends with the last event's proto-window, so that event was on time.
            if before < w.end <= self.watermark:
                self.fire(w, ON_TIME)
        for w in self.windows:
            if before < w.end + self.lateness <= self.watermark and w.pending:
                self.fire(w, LATE)

    def fire(self, window: Window, timing: str) -> None:
        fresh, window.pending = window.pending, []
        window.fired += fresh
        window.pane += 1
        value = Pane(
            start=window.start,
            end=window.end,
            key=window.key,
            pane=window.pane,
            timing=timing,
            last=self.watermark >= window.end + self.lateness,
            late_events=sum(e.late for e in window.fired),
            values=self.finish(window.fired),
        )
        if self.accumulation == "retracting":
            self.panes += [
                replace(value, start=p.start, end=p.end, values=p.values, retraction=True)
                for p in window.published
            ]
        discarding = self.accumulation == "discarding"
        self.panes.append(replace(value, values=self.finish(fresh)) if discarding else value)
        window.published = [value]

    def finish(self, events: list[Event]) -> Row:
        return {name: finished(what, events) for name, what in self.aggregates.items()}

    def row(self, p: Pane, **facts: Value) -> Row:
        bounds = {"window_start": text(p.start), "window_end": text(p.end)}
        keys = dict(zip(self.keys, p.key, strict=True))
        return plain(bounds | keys | {"timing": p.timing} | facts | p.values)

    def window_row(self, p: Pane) -> Row:
        final = self.watermark >= p.end + self.lateness
        return self.row(p, revision=p.pane, final=final, late_events=p.late_events)

    def pane_row(self, p: Pane) -> Row:
        return self.row(p, pane=p.pane, last=p.last, retraction=p.retraction)

    def result(self) -> Row:
        published = [p for window in self.windows for p in window.published]
        late = sorted(self.too_late, key=lambda found: (*found[:2], _nulls_first(found[2])))
        return {
            "watermark": text(self.watermark),
            "windows": [self.window_row(p) for p in sorted(published, key=_place)],
            "panes": [self.pane_row(p) for p in sorted(self.panes, key=_place)],
            "late": [plain(row) for *_, row in late],
        }


def simulate(scenario: Row) -> Row:
    """Return the result of a scenario in the format of `tidemark test --json`.

    Rows of `late` with the same window and keys are in order of arrival.
    """
    stream = Stream(scenario)
    for item in scenario["arrivals"]:
        match item:
            case {"clock": by}:
                stream.tick(duration(by))
                stream.beat()
            case {"watermark": to}:
                stream.advance(micros(moment(to)))
            case {"rows": rows}:
                stream.arrive(rows)
            case _:
                raise ValueError(f"an item is rows, a watermark or a clock: {item}")
    if not scenario.get("open", False):
        stream.advance(math.inf)
    return {"name": scenario["name"], **stream.result()}


def believed(time: datetime | None) -> bool:
    """Return whether an event time is valid; the first and last years are not."""
    return time is not None and 1 < time.year < 9999


def windows_of(window: Row, at: int) -> list[tuple[Instant, Instant]]:
    """Return all windows [start, end) with the instant; for sessions, the event's own window."""
    ((kind, spec),) = window.items()
    if kind == "global":
        return [(-math.inf, math.inf)]
    if kind == "calendar":
        return [_period(spec["unit"], ZoneInfo(spec.get("timezone", "UTC")), at)]
    lengths = {name: duration(told) for name, told in spec.items()}
    if kind == "session":
        return [(at, at + lengths["gap"])]
    size, since = lengths["size"], at - lengths.get("offset", 0)
    if kind == "sliding":
        newest = at - since % lengths["slide"]
        return [(start, start + size) for start in range(newest, at - size, -lengths["slide"])]
    start = at - since % size
    if kind == "cumulating":
        ends = range(start + lengths["step"], start + size + 1, lengths["step"])
        return [(start, end) for end in ends if at < end]
    assert kind == "tumbling"
    return [(start, start + size)]


def _period(unit: str, zone: ZoneInfo, at: int) -> tuple[int, int]:
    """Return the last beginning of a period that is not after an instant, and the next one.

    A skipped midnight is the instant of the skip. The first of two midnights counts.
    """

    def following(day: date) -> date:
        return {
            "day": day + timedelta(days=1),
            "week": day + timedelta(days=7),
            "month": (day + timedelta(days=31)).replace(day=1),
            "year": date(day.year + 1, 1, 1),
        }[unit]

    day = (EPOCH + at * MICROSECOND).astimezone(zone).date()
    first = {
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": day.replace(day=1),
        "year": date(day.year, 1, 1),
    }[unit]
    # The clock may go back to a day that has ended.
    days = (first, following(first), following(following(first)))
    bounds = [micros(datetime.combine(each, time(), zone)) for each in days]
    return max(b for b in bounds if b <= at), min(b for b in bounds if b > at)


def _sign(event: Event) -> int:
    return -1 if event.row.get("retraction") else 1


FINISH: dict[str, Callable[[list[Value]], Value]] = {
    "avg": statistics.fmean,
    "min": min,
    "max": max,
    "stddev": lambda found: statistics.stdev(map(float, found)) if len(found) > 1 else None,
    "first": lambda found: found[0],
    "last": lambda found: found[-1],
}


def finished(what: Value, events: list[Event]) -> Value:
    """Return an aggregate's value; only `count` counts rows without a value.

    Counts and sums subtract the retractions in a chain of changes.
    """
    if what == "count":
        return sum(map(_sign, events))
    ((kind, of),) = what.items()
    column = of["of"] if kind == "quantile" else of
    in_order = sorted(events, key=lambda e: (e.at, e.number))
    found = [e.row[column] for e in in_order if e.row[column] is not None]
    if kind == "collect":
        return sorted(found)
    if kind in ("count_distinct", "approx_count_distinct"):
        return len(set(found))
    if not found:
        return None
    if kind == "sum":
        known = [e for e in in_order if e.row[column] is not None]
        total = sum(_sign(e) * e.row[column] for e in known)
        return total if sum(map(_sign, known)) else None
    if kind == "quantile":
        # The least value with at least this share of all values at or below it.
        return float(sorted(found)[max(math.ceil(Decimal(str(of["at"])) * len(found)), 1) - 1])
    return FINISH[kind](found)


def duration(told: str) -> int:
    """Return the microseconds of a number and a unit."""
    units = {"microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000}
    units |= {"hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}
    number, unit = told.split()
    return int(Decimal(number) * units[unit.removesuffix("s")])


def moment(told: str | date) -> datetime:
    """Parse a date and time from YAML; without an offset it is UTC."""
    found = datetime.fromisoformat(str(told))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


FIRST, LAST = micros(datetime.min.replace(tzinfo=UTC)), micros(datetime.max.replace(tzinfo=UTC))
"""The first and the last possible instant of a window's bounds."""


def text(at: Instant) -> str | None:
    if math.isinf(at):
        return "+infinity" if at > 0 else None
    return plain(EPOCH + int(at) * MICROSECOND)


def typed(kind: str, value: Value) -> Value:
    """Convert a value to the Python type of a Spark type."""
    if value is None:
        return None
    if found := re.fullmatch(r"decimal\(\d+, *(\d+)\)", kind):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-int(found[1])), ROUND_HALF_UP)
    kinds = {"timestamp": moment, "string": str, "int": int, "bigint": int, "double": float}
    return kinds[kind](value)


def plain(value: Value) -> Value:
    """Convert a value to its JSON form."""
    match value:
        case dict():
            return {name: plain(v) for name, v in value.items()}
        case list():
            return [plain(v) for v in value]
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return f"{value:f}"
        case _:
            return value


def _place(p: Pane) -> tuple[Value, ...]:
    return p.start, p.end, _nulls_first(p.key), p.pane, not p.retraction


def _nulls_first(key: Key) -> list[tuple[bool, Value]]:
    return [(value is not None, value) for value in key]
