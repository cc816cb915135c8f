"""An oracle for scenarios with derived sources: their definitions over whole logs.

Everything is computed from the scenario's text in plain Python, without Tidemark. `simulate` first
computes the arrivals of each source with their watermarks, and then the derived sources, one after
the other. A derived source is a function of its *steps*, the order in which the arrivals of its
bases were taken. They can be given, if they were recorded; by default all arrivals are taken at
once, by their clock, then by the order of the bases, then by their number.

The rules of a join, for a left row with event time t, a right row with event time u, and the
allowed lateness A (for inner joins unlimited, for others 0 by default):

- A row takes part if it has an event time, and that is not before the watermark that its own base
  had before its arrival, less A.
- Rows that take part are a pair if their keys are equal and not null, u is in the reach of t, and
  the condition is true. The pair belongs to the later of the two steps.
- A row that takes part and is in no pair is a row of left and full joins. It belongs to the first
  step, its own or a later one, after which the other base's watermark is greater than the end of
  its reach plus A.

A row of an as-of join is a left row that takes part, with the newest right row of its key that
takes part and is not after it; A is 0 by default. It belongs to the first step, its own or a later
one, after which the right base's watermark is greater than t plus A.

A chain has a window at the first step after which no event can change it: the watermark has passed
its end by the allowed lateness, and for sessions also by the gap. A chain of changes has the panes
that each arrival fires, with retractions. A row and its equal retraction in one arrival cancel.

A base is silent if its newest arrival is a heartbeat. With `idle`, the heartbeat of a base that has
been silent for that long raises the base's watermark, as seen by the derived source, for good: to
the least of the other bases that are not idle themselves, or to the greatest of all others if each
is idle. Bases that have ended do not count. A derived source is silent while all its bases are, and
not before its last arrival that has rows or comes while a base is not silent.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.model.oracle import (
    EPOCH,
    MICROSECOND,
    Instant,
    Row,
    Stream,
    Window,
    believed,
    duration,
    micros,
    moment,
    plain,
    text,
    typed,
    windows_of,
)

Steps = Sequence[tuple[int, int]]
"""For each step, the number of the base and the number of its arrival."""


@dataclass(frozen=True)
class Arrival:
    """An arrival of a log, with the watermark before and after it.

    Args:
        silent_since: for a heartbeat, the clock since which the source has been silent.
    """

    clock: int
    rows: list[Row]
    before: Instant
    after: Instant
    silent_since: int | None = None


@dataclass
class EventLog:
    """The event log of a source.

    Args:
        columns: their types by name.
        added: those that the derivation added.
        unjoined: the rows of bases that take no part.
        names: the names that the columns of the bases have here.
        windows: for a chain, the windows of its asset at the end.
    """

    event_time: str
    columns: dict[str, str]
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    added: tuple[str, ...] = ()
    unjoined: list[Row] = field(default_factory=list[Row])
    names: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    windows: list[Row] = field(default_factory=list[Row])

    def time(self, row: Row) -> int | None:
        """Return the event time of a row in microseconds, if it is possible."""
        return micros(row[self.event_time]) if believed(row[self.event_time]) else None

    @property
    def own(self) -> list[str]:
        return [c for c in self.columns if c not in self.added or c == self.event_time]


def simulate(scenario: Row, steps: Mapping[str, Steps] | None = None) -> Row:
    """Return the result of a scenario in the format of `tidemark test --json`.

    Args:
        steps: for each derived source, its recorded steps.
    """
    logs = source_logs(scenario)
    for name, definition in scenario.get("derived", {}).items():
        logs[name] = derive(definition, logs, None if steps is None else steps[name])
    derived = {name: logs[name] for name in scenario.get("derived", {})}
    result: Row = {
        "name": scenario["name"],
        "derived": {name: _rows(log) for name, log in derived.items()},
        "unjoined": {name: [plain(row) for row in log.unjoined] for name, log in derived.items()},
    }
    if "transform" not in scenario:
        last = list(logs.values())[-1].arrivals
        return result | {"watermark": text(last[-1].after) if last else None}
    return result | _windows(scenario, logs[scenario["transform"]["source"]])


def source_logs(scenario: Row) -> dict[str, EventLog]:
    """Return the event logs of a scenario's sources."""
    clock = micros(moment(scenario.get("clock_start", EPOCH)))
    tick = duration(scenario.get("tick", "1 millisecond"))
    streams, logs = dict[str, Stream](), dict[str, EventLog]()
    for name, source in scenario["sources"].items():
        transform = {"window": {"global": {}}, "aggregates": {}}
        start = EPOCH + clock * MICROSECOND
        streams[name] = Stream({"source": source, "transform": transform, "clock_start": start})
        logs[name] = EventLog(source["event_time"], source["columns"])

    def arrive(name: str, item: Row) -> None:
        stream, columns = streams[name], logs[name].columns
        stream.clock, before = clock, stream.watermark
        rows = [
            {c: typed(kind, row.get(c)) for c, kind in columns.items()}
            for row in item.get("rows", ())
        ]
        if "rows" in item:
            stream.arrive(item["rows"])
        elif "watermark" in item:
            stream.advance(micros(moment(item["watermark"])))
        elif "end" in item:
            stream.advance(math.inf)
        else:
            stream.beat()
        is_heartbeat = stream.heartbeats and not {"rows", "watermark", "end"} & item.keys()
        silent_since = stream.silent_since if is_heartbeat else None
        logs[name].arrivals.append(Arrival(clock, rows, before, stream.watermark, silent_since))

    for item in scenario["arrivals"]:
        clock += duration(item["clock"]) if "clock" in item else tick
        arrive(item["source"], item)
    if not scenario.get("open", False):
        for name in logs:
            if streams[name].watermark < math.inf:
                clock += tick
                arrive(name, {"end": True})
    return logs


def derive(definition: Row, logs: Mapping[str, EventLog], steps: Steps | None) -> EventLog:
    """Return the event log of a derived source."""
    ((kind, _),) = definition.items()
    names, given = bases_of(definition)
    bases = [logs[name] for name in names]
    taken = order(bases) if steps is None else steps
    if kind == "union":
        return _union(given, names, bases, taken)
    if kind == "chain":
        chain = _changes if given.get("rows") == "changes" else _chain
        return chain(given, bases[0], taken)
    if kind == "as_of":
        return _as_of(given, names, bases, taken)
    return _join(given, names, bases, taken)


def bases_of(definition: Row) -> tuple[list[str], Row]:
    """Return the names of the bases of a derived source, and the options of its definition."""
    ((kind, given),) = definition.items()
    return _BASES[kind](given), given


_BASES: dict[str, Callable[[Row], list[str]]] = {
    "join": lambda given: [given["left"], given["right"]],
    "as_of": lambda given: [given["left"], given["right"]],
    "union": lambda given: given["of"],
    "chain": lambda given: [given["source"]],
}


def order(bases: Sequence[EventLog]) -> Steps:
    """Return the steps if all arrivals are taken at once."""
    found = [(a.clock, n, m) for n, base in enumerate(bases) for m, a in enumerate(base.arrivals)]
    return [(n, m) for _, n, m in sorted(found)]


Marks = Sequence[Sequence[Instant]]
"""The watermark of each base, as the derived source sees it, after each step."""


def effective_watermarks(bases: Sequence[EventLog], steps: Steps, given: Row) -> Marks:
    """Return the watermarks of the bases after each step.

    Args:
        given: the options of the derived source.
    """
    limit = duration(given["idle"]) if "idle" in given else math.inf
    marks: list[Instant] = [-math.inf] * len(bases)
    newest: list[Arrival | None] = [None] * len(bases)
    found = list[list[Instant]]()

    def is_idle(base: int) -> bool:
        arrival = newest[base]
        silence = None if arrival is None else arrival.silent_since
        return arrival is not None and silence is not None and arrival.clock - silence >= limit

    for base, number in steps:
        newest[base] = arrival = bases[base].arrivals[number]
        marks[base] = max(marks[base], arrival.after)
        if is_idle(base):
            others = [n for n, m in enumerate(marks) if n != base and m != math.inf]
            active = [marks[n] for n in others if not is_idle(n)]
            idle = [marks[n] for n in others]
            marks[base] = max([marks[base], *([min(active)] if active else idle)])
        found.append(list(marks))
    return found


def _progress(
    bases: Sequence[EventLog],
    steps: Steps,
    marks: Marks,
    look_back: Sequence[int],
    rows: Mapping[int, list[Row]],
) -> list[Arrival]:
    """Return the arrivals of a derived source, whose watermark follows from those of its bases."""
    found, watermark, clock = list[Arrival](), -math.inf, 0
    newest: list[Arrival | None] = [None] * len(bases)
    newest_data = -math.inf
    for number, (base, arrival) in enumerate(steps):
        newest[base] = taken = bases[base].arrivals[arrival]
        clock = taken.clock if number == 0 else max(clock, taken.clock)
        before = watermark
        reached = [mark - back for mark, back in zip(marks[number], look_back, strict=True)]
        watermark = max(before, min(reached))
        rows_of_step = rows.get(number, [])
        still_open = [
            None if one is None else one.silent_since
            for one, mark in zip(newest, marks[number], strict=True)
            if mark != math.inf
        ]
        since = None
        if taken.silent_since is not None and not rows_of_step and None not in still_open:
            since = int(max([newest_data, *(s for s in still_open if s is not None)]))
        newest_data = clock if since is None else newest_data
        found.append(Arrival(clock, rows_of_step, before, watermark, since))
    return found


def _union(given: Row, names: Sequence[str], bases: Sequence[EventLog], steps: Steps) -> EventLog:
    time, added = bases[0].event_time, ("origin", "origin_arrival", "origin_position")
    mapped = [{c: time if c == base.event_time else c for c in base.own} for base in bases]
    columns = {
        new: base.columns[old]
        for base, own in zip(bases, mapped, strict=True)
        for old, new in own.items()
    }
    rows = {
        number: [
            dict.fromkeys(columns)
            | {new: row[old] for old, new in mapped[base].items()}
            | dict(zip(added, (names[base], arrival, position), strict=True))
            for position, row in enumerate(bases[base].arrivals[arrival].rows)
        ]
        for number, (base, arrival) in enumerate(steps)
    }
    columns |= {"origin": "string", "origin_arrival": "bigint", "origin_position": "bigint"}
    marks = effective_watermarks(bases, steps, given)
    arrivals = _progress(bases, steps, marks, [0] * len(bases), rows)
    return EventLog(time, columns, arrivals, added, [], mapped)


def _chain(given: Row, base: EventLog, steps: Steps) -> EventLog:
    transform = given["transform"]
    stream = _stream(base, transform)
    gap = duration(transform["window"].get("session", {}).get("gap", "0 seconds"))
    rows, taken, windows = dict[int, list[Row]](), list[Any](), list[Row]()
    for number, arrival in enumerate(base.arrivals):
        _arrive(stream, arrival)
        done = [
            w
            for w in stream.windows
            if w.published and w not in taken and arrival.after >= w.end + stream.lateness + gap
        ]
        taken += done
        found = [(w.end, w.start, _nulls_first(w.key), _window_row(stream, w)) for w in done]
        rows[number] = [row for *_, row in sorted(found, key=lambda each: each[:3])]
    for window in stream.windows:
        if window.published:
            final = stream.watermark >= window.end + stream.lateness
            windows.append({**_window_row(stream, window), "final": final})
    columns = {key: base.columns[key] for key in stream.keys}
    for name, what in transform["aggregates"].items():
        ((kind, of),) = what.items() if isinstance(what, dict) else ((what, None),)
        columns[name] = "bigint" if kind in ("count", "sum") else base.columns[str(of)]
    columns |= dict.fromkeys(("window_first", "window_last"), "timestamp")
    marks = effective_watermarks([base], steps, given)
    arrivals = _progress([base], steps, marks, [stream.lateness + gap], rows)
    added = ("window_first", "window_last")
    return EventLog("window_last", columns, arrivals, added, windows=windows)


def _changes(given: Row, base: EventLog, steps: Steps) -> EventLog:
    final = _chain(given, base, steps)
    stream = _stream(base, given["transform"] | {"accumulation": "retracting"})
    rows, known = dict[int, list[Row]](), 0
    for number, arrival in enumerate(base.arrivals):
        _arrive(stream, arrival)
        panes = [
            {
                **dict(zip(stream.keys, pane.key, strict=True)),
                **pane.values,
                "window_first": EPOCH + int(pane.start) * MICROSECOND,
                "window_last": EPOCH + int(pane.end - 1) * MICROSECOND,
                "retraction": pane.retraction,
            }
            for pane in stream.panes[known:]
        ]
        rows[number] = leave_out_cancelled(panes)
        known = len(stream.panes)
    columns = {**final.columns, "retraction": "boolean"}
    marks = effective_watermarks([base], steps, given)
    return EventLog("window_last", columns, _progress([base], steps, marks, [0], rows))


def leave_out_cancelled(rows: Sequence[Row]) -> list[Row]:
    """Return signed rows without each row whose equal retraction is among them."""
    signs = [-1 if row["retraction"] else 1 for row in rows]
    facts = [repr({**row, "retraction": None}) for row in rows]
    newest = dict[str, int]()
    for number, (sign, fact) in enumerate(zip(signs, facts, strict=True)):
        net = sum(s for s, f in zip(signs, facts, strict=True) if f == fact)
        assert abs(net) <= 1
        if sign == net:
            newest[fact] = number
    return [rows[number] for number in sorted(newest.values())]


def _window_row(stream: Stream, window: Window) -> Row:
    """Return a window as an event; its bounds are within the years 1 to 9999."""
    ends = {"window_first": window.start, "window_last": window.end - 1}
    times = {name: EPOCH + int(micros) * MICROSECOND for name, micros in ends.items()}
    keys = dict(zip(stream.keys, window.key, strict=True))
    return {**keys, **window.published[-1].values, **times}


@dataclass(frozen=True)
class _Row:
    """A row of a base, with its event time, and its place in the join."""

    row: Row
    time: int
    step: int
    place: tuple[int, int]


def _join(given: Row, names: Sequence[str], bases: Sequence[EventLog], steps: Steps) -> EventLog:
    reach = reach_of(given["within"])
    how, latest = given.get("how", "inner"), given.get("event_time", "latest") == "latest"
    lateness = None if how == "inner" else 0
    if "allowed_lateness" in given:
        lateness = duration(given["allowed_lateness"])
    marks = effective_watermarks(bases, steps, given)
    parts, unjoined = _taking_part(names, bases, steps, marks, lateness)
    added = (*(("joined_at",) if latest else ()), *_LINEAGE)
    named = _names(given, names, bases)
    time_column = "joined_at" if latest else named[0][bases[0].event_time]

    def joined(left: _Row | None, right: _Row | None) -> Row:
        found = _paired(left, right, bases, named)
        if latest:
            time = max(each.time for each in (left, right) if each is not None)
            found["joined_at"] = EPOCH + time * MICROSECOND
        return found

    found, paired = list[tuple[Any, ...]](), set[int]()
    condition = condition_of(given.get("where"))
    for left in parts[0]:
        for right in parts[1]:
            if (
                all(left.row[k] is not None and left.row[k] == right.row[k] for k in given["on"])
                and reach(left.time)[0] <= right.time <= reach(left.time)[1]
                and condition(left.row, right.row)
            ):
                place = (*left.place, *right.place)
                found.append((max(left.step, right.step), 0, place, joined(left, right)))
                paired |= {id(left), id(right)}
    for side in (0, 1)[: {"inner": 0, "left": 1, "full": 2}[how]]:
        for row in (row for row in parts[side] if id(row) not in paired):
            last = reach(row.time)[1] if side == 0 else _last_left(row.time, given["within"])
            step = _settled(marks, 1 - side, last + (lateness or 0))
            if step is not None:
                alone = joined(row, None) if side == 0 else joined(None, row)
                found.append((max(step, row.step), 1 + side, row.place, alone))
    rows = _by_step(found)
    columns = {own[c]: b.columns[c] for b, own in zip(bases, named, strict=True) for c in b.own}
    columns |= {"joined_at": "timestamp"} if latest else {}
    columns |= dict.fromkeys(_LINEAGE, "bigint")
    look_back = look_back_of(given["within"], how, lateness or 0, latest=latest)
    arrivals = _progress(bases, steps, marks, look_back, rows)
    return EventLog(time_column, columns, arrivals, added, unjoined, named)


def _as_of(given: Row, names: Sequence[str], bases: Sequence[EventLog], steps: Steps) -> EventLog:
    lateness = duration(given.get("allowed_lateness", "0 seconds"))
    marks = effective_watermarks(bases, steps, given)
    parts, unjoined = _taking_part(names, bases, steps, marks, lateness)
    named, on = _names(given, names, bases), given["on"]
    found = list[tuple[Any, ...]]()
    for left in parts[0]:
        step = _settled(marks, 1, left.time + lateness)
        if step is None:
            continue
        versions = [
            right
            for right in parts[1]
            if right.time <= left.time
            and all(left.row[k] is not None and left.row[k] == right.row[k] for k in on)
        ]
        newest = max(versions, key=lambda row: (row.time, row.place), default=None)
        if newest and "deleted" in given and _is_deleted(newest.row, given["deleted"]):
            newest = None
        if newest or given.get("how") == "left":
            place = (*left.place, *(newest.place if newest else _NOWHERE))
            found.append((max(step, left.step), 0, place, _paired(left, newest, bases, named)))
    columns = {own[c]: b.columns[c] for b, own in zip(bases, named, strict=True) for c in b.own}
    columns |= dict.fromkeys(_LINEAGE, "bigint")
    arrivals = _progress(bases, steps, marks, (0, lateness), _by_step(found))
    time = named[0][bases[0].event_time]
    return EventLog(time, columns, arrivals, _LINEAGE, unjoined, named)


def _is_deleted(row: Row, condition: str) -> bool:
    """Return whether a condition such as `v = 2` is true for a row."""
    column, value = condition.split(" = ")
    return row[column] == int(value)


def _taking_part(
    names: Sequence[str],
    bases: Sequence[EventLog],
    steps: Steps,
    marks: Marks,
    lateness: int | None,
) -> tuple[list[list[_Row]], list[Row]]:
    """Return the rows of each side that take part, and all others."""
    parts: list[list[_Row]] = [[], []]
    unjoined = list[Row]()
    for step, (base, number) in enumerate(steps):
        arrival = bases[base].arrivals[number]
        before = max(arrival.before, marks[step - 1][base] if step > 0 else -math.inf)
        for position, row in enumerate(arrival.rows):
            time = bases[base].time(row)
            late = lateness is not None and time is not None and time < before - lateness
            if time is None or late:
                reason = "no_event_time" if time is None else "too_late"
                facts = {"source": names[base], "reason": reason, "arrival": step}
                unjoined.append({**row, "watermark": text(arrival.before), **facts})
            else:
                parts[base].append(_Row(row, time, step, (number, position)))
    return parts, unjoined


def _paired(
    left: _Row | None,
    right: _Row | None,
    bases: Sequence[EventLog],
    named: Sequence[dict[str, str]],
) -> Row:
    """Return the columns of two rows, and their places."""
    found = Row()
    for each, base, own in zip((left, right), bases, named, strict=True):
        for old in base.own:
            value = None if each is None else each.row[old]
            found[own[old]] = found.get(own[old]) if value is None else value
    places = [*(left.place if left else _NOWHERE), *(right.place if right else _NOWHERE)]
    return found | dict(zip(_LINEAGE, places, strict=True))


def _by_step(found: Sequence[tuple[Any, ...]]) -> dict[int, list[Row]]:
    """Return rows by their step, in order; each is a step, two parts of the order, and the row."""
    rows = dict[int, list[Row]]()
    for step, _, _, row in sorted(found, key=lambda each: each[:3]):
        rows.setdefault(step, []).append(row)
    return rows


_LINEAGE = ("left_arrival", "left_position", "right_arrival", "right_position")
_NOWHERE = (None, None)


def _settled(marks: Marks, side: int, instant: Instant) -> int | None:
    """Return the first step after which the watermark of a base is past an instant."""
    return next((step for step, after in enumerate(marks) if after[side] > instant), None)


def reach_of(within: Any) -> Callable[[int], tuple[int, int]]:  # noqa: ANN401
    """Return the function from a left event time to the first and last right one of its reach."""
    if isinstance(within, list):
        low, high = map(duration, within)
        return lambda time: (time + low, time + high)
    return lambda time: _window(within, time)


def _last_left(time: int, within: Any) -> int:  # noqa: ANN401
    """Return the last left event time whose reach has a right one."""
    return time - duration(within[0]) if isinstance(within, list) else _window(within, time)[1]


def _window(within: Row, time: int) -> tuple[int, int]:
    ((start, end),) = windows_of(within, time)
    return int(start), int(end) - 1


def look_back_of(within: Any, how: str, lateness: int, *, latest: bool) -> tuple[int, int]:  # noqa: ANN401
    """Return how far the watermark of a join stays behind those of its bases."""
    if isinstance(within, list):
        before, after = max(-duration(within[0]), 0), max(duration(within[1]), 0)
    else:
        before = after = duration(within["tumbling"]["size"]) - 1
    if how == "inner":
        return (0, 0) if latest else (0, after)
    return (before + lateness if how == "full" else 0, after + lateness)


def _names(given: Row, names: Sequence[str], bases: Sequence[EventLog]) -> list[dict[str, str]]:
    """Return the names of the bases' columns in a join: equal ones begin with `l_` and `r_` if the
    join has no `rename`."""
    own = [[c for c in base.own if c not in given["on"]] for base in bases]
    taken = [c.lower() for columns in own for c in columns] + ["joined_at", *_LINEAGE]
    found = [
        {f"{name}.{c}": f"{letter}_{c}" for c in columns if taken.count(c.lower()) > 1}
        for letter, name, columns in zip("lr", names, own, strict=True)
    ]
    rename = given.get("rename", found[0] | found[1])
    return [
        {key: key for key in given["on"]} | {c: rename.get(f"{name}.{c}", c) for c in columns}
        for name, columns in zip(names, own, strict=True)
    ]


_CONDITION = re.compile(r"l\['(\w+)'\] (<=|!=) (?:r\['(\w+)'\]|'([^']*)')")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"<=": operator.le, "!=": operator.ne}


def condition_of(where: str | None) -> Callable[[Row, Row], bool]:
    """Return the function for a condition such as `l['v'] <= r['v']` or `l['id'] != 'a'`."""
    if where is None:
        return lambda left, right: True
    found = _CONDITION.fullmatch(where)
    assert found is not None, where
    one, compare, other, literal = found[1], _OPERATORS[found[2]], found[3], found[4]

    def holds(left: Row, right: Row) -> bool:
        values = left[one], literal if other is None else right[other]
        return None not in values and compare(*values)

    return holds


def _rows(log: EventLog) -> list[Row]:
    """Return the events of a log in the format of a result."""
    return [
        plain({"arrival": number, **row, "watermark": text(arrival.before)})
        for number, arrival in enumerate(log.arrivals)
        for row in arrival.rows
    ]


def _windows(scenario: Row, log: EventLog) -> Row:
    """Return the windows over an event log."""
    stream = _stream(log, scenario["transform"])
    for arrival in log.arrivals:
        _arrive(stream, arrival)
    return stream.result()


def _stream(log: EventLog, transform: Row) -> Stream:
    """Return a stream of windows over an event log."""
    source = {"event_time": log.event_time, "columns": log.columns, "watermark": {"given": {}}}
    keys = {"keys": [_resolve(log, key) for key in transform.get("keys", ())]}
    start = EPOCH + (log.arrivals[0].clock if log.arrivals else 0) * MICROSECOND
    return Stream({"source": source, "transform": transform | keys, "clock_start": start})


def _arrive(stream: Stream, arrival: Arrival) -> None:
    stream.tick(arrival.clock - stream.clock)
    for row in arrival.rows:
        stream.judge(row)
    stream.advance(arrival.after)


def _nulls_first(key: Sequence[Any]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in key]


def _resolve(log: EventLog, name: str) -> str:
    """Return the column that a scenario may name `l.COLUMN`, `r.COLUMN` or `at`."""
    if name in log.columns:
        return name
    letter, _, column = name.partition(".")
    return log.names["lr".index(letter)][column] if column else log.event_time
