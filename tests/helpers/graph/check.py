"""The invariant: each node equals its definition over what its bases recorded, or is reported.

The tables of a node are compared with the definition over the tables of its bases, in plain Python.
The event logs of sources are compared with what the outside system has sent. So by induction, each
node equals what a fresh home computes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.graph.case import EPOCH, EPOCH_MICROS, SECOND, Part, bases_of
from helpers.graph.connector import Sent, typed
from helpers.graph.definitions import Definitions, keeps, renames, value_column
from helpers.graph.home import Home
from helpers.graph.mart import mart_rows, mart_tables
from helpers.graph.topic import topic_difference
from helpers.graph.windows import (
    AssetHistory,
    Bounds,
    Event,
    Place,
    Rows,
    compute,
    last_arrival,
    windows_of,
)
from helpers.model.derived_oracle import Arrival, EventLog, Steps, derive
from helpers.model.oracle import micros
from tidemark.base.instants import INFINITY
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.store.asset import Asset
from tidemark.store.event_log.arrival import Arrival as RecordedArrival
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step

Row = dict[str, Any]
_SHOWN = 3


def difference(home: Home, name: str) -> str | None:
    """Return how the tables of a source or node differ from what they must have, or None."""
    if name in home.sent:
        return _check_source(home, name)
    if name in home.definitions.derived:
        return _check_derived(home, name)
    if name in home.definitions.sinks:
        return _check_sink(home, name)
    if name in home.definitions.marts:
        return _check_mart(home, name)
    return _check_asset(home, name)


def timeline(home: Home, source: Source) -> list[RecordedArrival]:
    if not home.store.has_table(source.timeline_table):
        return []
    return Log(home.store, source).read_timeline()


def _rows(home: Home, source: Source) -> dict[int, list[Row]]:
    """Return the rows of an event log by arrival, in order."""
    if not home.store.has_table(source.log_table):
        return {}
    table = home.store.load_rows(source.log_table)
    order = [("arrival", "ascending"), ("position", "ascending")]
    by_arrival = dict[int, list[Row]]()
    for row in table.sort_by(order).to_pylist():
        declared = {name: row.get(name) for name in source.columns}
        by_arrival.setdefault(row["arrival"], []).append(declared)
    return by_arrival


def _check_source(home: Home, name: str) -> str | None:
    source, sent = home.definitions.sources[name], home.sent[name]
    arrivals, recorded = timeline(home, source), _rows(home, source)
    if len(arrivals) != len(sent):
        return f"{len(arrivals)} arrivals are recorded, {len(sent)} were sent"
    if unknown := set(recorded) - set(range(len(sent))):
        return f"rows of arrivals {sorted(unknown)}, which the timeline does not have"
    spec = home.project.sources[name]
    if not spec.get("skew") and (wrong := _check_watermarks(spec["bound"], arrivals, sent)):
        return wrong
    for number, each in enumerate(sent):
        rows = [typed(row, source.columns) for row in each.rows]
        if found := _compare(rows, recorded.get(number, []), list(source.columns)):
            return f"arrival {number}: {found}"
    return None


def _check_watermarks(
    bound: int, arrivals: Sequence[RecordedArrival], sent: Sequence[Sent]
) -> str | None:
    """Return how the recorded watermarks of a source differ from its definition, or None."""
    watermark: int | None = None
    for arrival, each in zip(arrivals, sent, strict=True):
        before = watermark
        times = [*each.erased, *(row["t"] for row in each.rows)]
        reached: list[int] = [time - bound for time in times if time is not None]
        if before is not None:
            reached.append(before)
            if each.silence is not None:
                reached.append(each.clock - bound)
        watermark = max(reached, default=None)
        recorded = [_case_seconds(arrival.before), _case_seconds(arrival.after)]
        if recorded != [before, watermark]:
            return f"arrival {arrival.arrival}: watermarks {recorded}, not {[before, watermark]}"
    return None


def _case_seconds(watermark: int | None) -> float | None:
    return None if watermark is None else (watermark - EPOCH_MICROS) / SECOND


def event_log(home: Home, name: str) -> EventLog:
    """Return the recorded event log of a source or a derived source, as the oracle takes it."""
    if name not in home.logs:
        home.logs[name] = _read_event_log(home, name)
    return home.logs[name]


def _read_event_log(home: Home, name: str) -> EventLog:
    source = home.loaded.source(name)
    rows = _rows(home, source)
    added = source.derivation.added_columns if isinstance(source, DerivedSource) else ()
    columns = {column: kind.lower() for column, kind in source.columns.items()}
    arrivals = [
        Arrival(
            a.arrived_at, rows.get(a.arrival, []), _instant(a.before, -1), _instant(a.after, -1)
        )
        for a in timeline(home, source)
    ]
    log = _SkewedLog(source.event_time, columns, arrivals, tuple(added))
    if source.max_future_skew is not None:
        for arrival in arrivals:
            latest = arrival.clock + _SKEW
            rows_ahead = [row for row in arrival.rows if (log.time(row) or 0) > latest]
            log.ahead |= {id(row) for row in rows_ahead}
    return log


_SKEW = 86_400 * SECOND
"""The `max_future_skew` of sources that have one."""


@dataclass
class _SkewedLog(EventLog):
    """An event log some of whose rows are dated too far after their arrival.

    Args:
        ahead: the Python identities of these rows.
    """

    ahead: set[int] = field(default_factory=set[int])

    def time(self, row: Row) -> int | None:
        return None if id(row) in self.ahead else super().time(row)


def _instant(watermark: int | None, sign: int) -> float:
    if watermark is None:
        return sign * math.inf
    return math.inf if watermark == INFINITY else watermark


def _check_derived(home: Home, name: str) -> str | None:
    source = home.definitions.derived[name]
    recorded = timeline(home, source)
    if not recorded:
        return None
    steps = [Step.of_position(a.position) for a in recorded]
    names = [base.name for base in source.base_sources]
    logs = {base: event_log(home, base) for base in names}
    taken = [(names.index(s.base), s.taken_arrival) for s in steps if s.change is None]
    if wrong := _check_steps(names, taken, logs):
        return wrong
    own = event_log(home, name)
    if home.nodes[name]["kind"] == "chain":
        return _check_chain(home, name, own, logs[names[0]], steps)
    expected = derive_node(home, name, steps)
    return _check_log(expected, own) or _check_unjoined(home, source, expected)


def derive_node(home: Home, name: str, steps: Sequence[Step]) -> EventLog:
    """Return the event log of a node by its loaded definition over the logs of its bases."""
    node, source = home.loaded_project.nodes[name], home.loaded.derived[name]
    names = [base.name for base in source.base_sources]
    logs = {base: event_log(home, base) for base in names}
    taken = [(names.index(step.base), step.taken_arrival) for step in steps]
    if node["kind"] == "row_asset":
        return _row_asset(home, node, logs[names[0]], taken)
    return derive({node["kind"]: _oracle_definition(node, home.loaded)}, logs, taken)


def _check_steps(
    names: Sequence[str], taken: Sequence[tuple[int, int]], logs: Mapping[str, EventLog]
) -> str | None:
    following = [0] * len(names)
    for base, arrival in taken:
        if arrival != following[base]:
            return f"a step takes arrival {arrival} of {names[base]} instead of {following[base]}"
        following[base] += 1
    for base, count in zip(names, following, strict=True):
        if count > len(logs[base].arrivals):
            return f"{count} arrivals of {base} were taken, which has {len(logs[base].arrivals)}"
    return None


def _oracle_definition(node: Part, definitions: Definitions) -> Part:
    known: dict[str, Source] = {**definitions.sources, **definitions.derived}
    if node["kind"] == "union":
        return {"of": node["of"]}
    definition = {
        "left": node["left"],
        "right": node["right"],
        "on": ["k"],
        "how": node["how"],
        "rename": renames(node, known),
    }
    if node["lateness"] is not None:
        definition["allowed_lateness"] = f"{node['lateness']} seconds"
    if node["kind"] == "join":
        definition["within"] = [f"{end} seconds" for end in node["within"]]
    return definition


def _row_asset(home: Home, node: Part, base: EventLog, taken: Steps) -> EventLog:
    column = value_column(home.loaded.source(node["source"]))
    arrivals = list[Arrival]()
    for _, number in taken:
        arrival = base.arrivals[number]
        rows = [row for row in arrival.rows if keeps(node["function"], row[column])]
        arrivals.append(Arrival(arrival.clock, rows, arrival.before, arrival.after))
    columns = {column: base.columns[column] for column in base.own}
    return EventLog(base.event_time, columns, arrivals)


_LINEAGE = {
    *("left_arrival", "left_position", "right_arrival", "right_position"),
    *("origin_arrival", "origin_position"),
}


def _check_log(expected: EventLog, recorded: EventLog) -> str | None:
    columns = [column for column in expected.columns if column not in _LINEAGE]
    pairs = zip(expected.arrivals, recorded.arrivals, strict=True)
    for number, (wanted, found) in enumerate(pairs):
        if (wanted.before, wanted.after) != (found.before, found.after):
            return (
                f"arrival {number}: the watermark went from {_seconds(found.before)} to "
                f"{_seconds(found.after)} instead of from {_seconds(wanted.before)} to "
                f"{_seconds(wanted.after)}"
            )
        if differing := _compare(wanted.rows, found.rows, columns):
            return f"arrival {number}: {differing}"
    return None


def _check_unjoined(home: Home, source: DerivedSource, expected: EventLog) -> str | None:
    if not home.store.has_table(source.dead_letters_table):
        recorded = list[Row]()
    else:
        recorded = home.store.load_rows(source.dead_letters_table).to_pylist()
    wanted = Counter((u["source"], u["arrival"], u["reason"]) for u in expected.unjoined)
    found = Counter(
        (
            r["read_from"].partition(" ")[0],
            r["arrival"],
            _REASONS.get(reason := r["reason"].partition(" in ")[0], reason),
        )
        for r in recorded
    )
    if wanted != found:
        return f"unjoined rows: expected {dict(wanted - found)}, recorded {dict(found - wanted)}"
    return None


_REASONS = {"future_timestamp": "no_event_time"}
"""The reasons that the oracle does not distinguish."""


def _seconds(watermark: float) -> str:
    if math.isinf(watermark):
        return str(watermark)
    return f"{(watermark - micros(EPOCH)) / SECOND:g}"


def _compare(wanted: Iterable[Row], found: Iterable[Row], columns: Sequence[str]) -> str | None:
    def values(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row.get(column) for column in columns) for row in rows)

    expected, recorded = values(wanted), values(found)
    missing = list((expected - recorded).elements())
    extra = list((recorded - expected).elements())
    if not missing and not extra:
        return None
    return f"missing rows {_shown(missing)}, extra rows {_shown(extra)}"


def _shown(rows: Sequence[tuple[Any, ...]]) -> str:
    texts = [" ".join(str(_plain(value)) for value in row) for row in rows[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"[{'; '.join(texts)}{more}]"


def _plain(value: Any) -> Any:  # noqa: ANN401
    return _seconds(micros(value)) + "s" if hasattr(value, "tzinfo") else value


# Windows


def events_of(home: Home, asset: Definition) -> tuple[list[Event], dict[int, int | None]]:
    """Return the recorded events of an asset's source, and the watermark after each arrival."""
    source = asset.source
    log = event_log(home, source.name)
    column = value_column(source)
    events = list[Event]()
    for number, arrival in enumerate(log.arrivals):
        watermark = None if math.isinf(arrival.before) else int(arrival.before)
        for row in arrival.rows:
            time = log.time(row)
            key = tuple(row[k] for k in asset.keys)
            sign = -1 if row.get("retraction") else 1
            events.append(Event(number, time, key, row[column], watermark, sign))
    reached = {
        number: None
        if arrival.after == -math.inf
        else min(int(arrival.after), INFINITY)
        if not math.isinf(arrival.after)
        else INFINITY
        for number, arrival in enumerate(log.arrivals)
    }
    return events, reached


def _check_asset(home: Home, name: str) -> str | None:
    asset = home.definitions.assets[name]
    node = home.nodes[name]
    if not home.store.has_table(asset.published_table):
        return None
    at = Asset(home.store, asset)
    last = at.state.read_last_commit()
    if at.published_commit_number() < last.commit_number:
        return "a commit is not completely published"
    columns = home.store.read_schema(asset.published_table).names
    if missing := [c for c in (*asset.keys, *asset.aggregates) if c not in columns]:
        return f"the table lacks {missing}"
    through: dict[Bounds | None, int] = {None: last.after.at.arrival}
    for each in last.after.covers:
        through[each.start, each.end] = each.at.arrival
    expected = _windows(home, asset, through)
    published = _published(home, asset, asset.published_table)
    quarantined = dict[Any, Row]()
    if home.store.has_table(asset.quarantine_table):
        quarantined = _published(home, asset, asset.quarantine_table)
    return _compare_windows(home, node, asset, expected, published, quarantined)


def _windows(home: Home, asset: Definition, through: Mapping[Bounds | None, int]) -> Rows:
    node, history = home.nodes[asset.name], home.history(asset.rolled_up_name or asset.name)
    events, reached = events_of(home, asset)
    if asset.rolled_up_name is None:
        latenesses = [*history.latenesses(), node["lateness"] * SECOND]
        return compute(node, events, history.admits, through, reached, latenesses)
    return _roll_up(home.nodes[asset.rolled_up_name], node, events, history, through, reached)


def _roll_up(
    base: Part,
    node: Part,
    events: Sequence[Event],
    history: AssetHistory,
    through: Mapping[Bounds | None, int],
    reached: Mapping[int, int | None],
) -> Rows:
    """Return the rows of a roll-up: an event counts in the window that contains its base's."""

    def admits(event: Event, larger: Bounds) -> bool:
        if event.time is None:
            return False
        (smaller,) = windows_of(base, event.time)
        return event.arrival <= last_arrival(through, smaller) and history.admits(event, smaller)

    whole: dict[Bounds | None, int] = {None: max(through.values())}
    wide = {**base, "size": node["size"]}
    latenesses = [*history.latenesses(), base["lateness"] * SECOND]
    return compute(wide, events, admits, whole, reached, latenesses)


def _published(home: Home, asset: Definition, table: str) -> dict[Any, Row]:
    return {
        (
            (micros(row["window_start"]), micros(row["window_end"])),
            tuple(row[k] for k in asset.keys),
        ): row
        for row in home.store.load_rows(table).to_pylist()
    }


def _compare_windows(
    home: Home,
    node: Part,
    asset: Definition,
    expected: Rows,
    published: Mapping[Any, Row],
    quarantined: Mapping[Any, Row],
) -> str | None:
    def values(row: Row) -> Row:
        return {column: row[column] for column in asset.aggregates}

    unfired = [place for place, row in expected.items() if not row["fired"]]
    for window, row in expected.items():
        if not row["fired"]:
            continue
        final = row["final"]
        wanted = values(row)
        if node.get("most") is not None and row["n"] > node["most"]:
            held = quarantined.get(window)
            released = published.get(window)
            if held is not None and values(held) == wanted:
                continue
            if released and values(released) == wanted and released["quality"] == "released":
                continue
            return f"{_window(window)}: {wanted} is neither quarantined nor released"
        if window not in published:
            return f"{_window(window)}: {wanted} is not published"
        if values(published[window]) != wanted:
            return f"{_window(window)}: {values(published[window])} instead of {wanted}"
        if final not in (None, published[window]["final"]):
            return f"{_window(window)}: final is {not final}"
        if window in quarantined:
            return f"{_window(window)}: both published and quarantined"
    for window, row in published.items():
        # The sessions that a session merged stay published until it fires.
        if any(_contains(session, window) for session in unfired):
            continue
        if window not in expected and window not in quarantined:
            return f"{_window(window)}: {values(row)} is published, and must not be"
    return None


def _contains(session: Place, window: Place) -> bool:
    (start, end), key = session
    return start <= window[0][0] and window[0][1] <= end and key == window[1]


def _window(window: Any) -> str:  # noqa: ANN401
    (start, end), key = window
    return f"window {_seconds(start)}..{_seconds(end)} of {key}"


def _check_sink(home: Home, name: str) -> str | None:
    """Return how the topic of a sink differs from the published table, or None.

    The topic keeps the records of a table that was dropped, until the table is recreated.
    """
    asset = home.definitions.sinks[name]
    if not home.store.has_table(asset.published_table):
        return None
    if wrong := _other_columns(home, asset):
        return wrong
    topic = home.topics.get(asset.name)
    if topic is None:
        return "nothing was published"
    return topic_difference(asset, topic, home.store.load_rows(asset.published_table).to_pylist())


def _other_columns(home: Home, asset: Definition) -> str | None:
    """Return that a published table was made by a definition with other columns, or None."""
    existing = home.store.read_schema(asset.published_table).names
    has_other_keys = "k" in existing and "k" not in asset.keys
    if {*asset.keys, *asset.aggregates} <= {*existing} and not has_other_keys:
        return None
    return f"the table of {asset.name} has the columns {existing}"


def _check_mart(home: Home, name: str) -> str | None:
    """Return how a mart differs from its model over the windows that it was built from, or None."""
    if not mart_tables(home.store).has_table(name):
        return None
    found, allowed = mart_rows(home.store, name), home.built[name]
    if found in allowed:
        return None
    wanted = allowed[-1]
    differing = [day for day in wanted.keys() | found if wanted.get(day) != found.get(day)]
    day = min(differing)
    return f"day {day}: {found.get(day)} instead of {wanted.get(day)}"


# Chains


def _check_chain(
    home: Home, name: str, own: EventLog, base: EventLog, steps: Sequence[Step]
) -> str | None:
    node = home.nodes[name]
    asset = home.definitions.assets[node["of"]]
    if not home.store.has_table(asset.published_table):
        return "the table of its asset does not exist"
    if wrong := _other_columns(home, asset):
        return wrong
    columns = [*asset.keys, *asset.aggregates]
    published = dict[tuple[Any, ...], Row]()
    for row in home.store.load_rows(asset.published_table).to_pylist():
        window = micros(row["window_start"]), micros(row["window_end"])
        published[(*window, *(row[c] for c in columns))] = row
    net = Counter[tuple[Any, ...]]()
    for arrival in own.arrivals:
        for row in arrival.rows:
            window = micros(row["window_first"]), micros(row["window_last"]) + 1
            net[(*window, *(row[c] for c in columns))] += -1 if row.get("retraction") else 1
    if odd := [row for row, count in net.items() if count not in (0, 1)]:
        return f"rows that are in the chain {net[odd[0]]} times: {_chained(odd)}"
    rows = set(+net)
    if node["rows"] == "changes":
        at = Asset(home.store, asset)
        results = steps[-1].results
        is_current = (
            steps[-1].taken_arrivals[steps[-1].base] == len(base.arrivals) - 1
            and results is not None
            and results.commit == at.published_commit_number()
        )
        # Such a chain includes windows that are in quarantine.
        computed = _published(home, asset, asset.published_table)
        if home.store.has_table(asset.quarantine_table):
            computed |= _published(home, asset, asset.quarantine_table)
        current = {(*window, *(row[c] for c in columns)) for (window, _), row in computed.items()}
        wanted = current if is_current else rows
    else:
        reached = base.arrivals[steps[-1].taken_arrival].after
        windows = {each[:2]: each for each in published}
        latenesses = home.history(asset.rolled_up_name or asset.name).latenesses()
        bounds = {0, *latenesses} if not latenesses else set(latenesses)
        surely = {each for each in published if each[1] + max(bounds) <= reached}
        perhaps = {each for each in published if each[1] + min(bounds) <= reached}
        del windows
        wanted = (rows & perhaps) | surely
    if rows != wanted:
        return f"missing {_chained(wanted - rows)}, extra {_chained(rows - wanted)}"
    return None


def _chained(rows: Iterable[tuple[Any, ...]]) -> str:
    return _shown([(f"{_seconds(r[0])}..{_seconds(r[1])}", *r[2:]) for r in rows])


def is_below(nodes: Part, name: str, names: Iterable[str]) -> bool:
    """Return whether a node reads one of the named ones directly."""
    return bool(set(names).intersection(bases_of(nodes[name])))


Check = Callable[[Home, str], str | None]
