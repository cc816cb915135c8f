"""Random scenarios with several sources and derived sources: joins, unions, and those of others.

Times are on a grid of seconds, and sometimes a microsecond off it, so that events coincide with the
ends of reaches and windows, the watermarks and each other. Keys and values are few. A scenario
follows from its seed.
"""

from datetime import datetime, timedelta
from random import Random
from typing import Any

from helpers.model.derived_oracle import EventLog, derive, source_logs

Part = dict[str, Any]

COLUMNS = {"t": "timestamp", "k": "string", "v": "int", "id": "string"}
_BEGINNINGS = ("1970-01-01", "1969-12-31 23:59:50", "2024-02-29")
_FAR = "9998-06-01"
_WINDOWS: tuple[Part, ...] = (
    {"tumbling": {"size": "3 seconds"}},
    {"tumbling": {"size": "5 seconds", "offset": "1 second"}},
    {"sliding": {"size": "4 seconds", "slide": "2 seconds"}},
    {"session": {"gap": "2 seconds"}},
    {"session": {"gap": "2500 milliseconds"}},
    {"cumulating": {"size": "6 seconds", "step": "2 seconds"}},
    {"global": {}},
)
_FIRINGS: tuple[Part | None, ...] = (
    *(None, None, {"arrival": {}}, {"count": 1}, {"count": 2}),
    *({"every": "2 seconds"}, {"every": "3 seconds"}),
)


def random_derived_scenario(
    seed: int, longest: int = 12, *, changes: bool = False, silences: bool = False
) -> Part:
    """Return a scenario without `expect`.

    Args:
        longest: the most arrivals before the end.
        changes: true if the last derived source may be a chain of changes.
        silences: true if sources may be silent, and derived sources may leave out silent bases.
    """
    chance = Random(seed)
    sources = {name: _source(chance) for name in "abc"[: chance.choice([2, 2, 2, 3])]}
    # Of its own, so that the rest of a scenario is the same with and without silence.
    silence = Random(f"silence {seed}")
    is_silent = silences and silence.random() < 0.5
    beginning = datetime.fromisoformat(chance.choice(_BEGINNINGS))
    arrivals = _arrivals(chance, sources, beginning, longest)
    if is_silent:
        arrivals = _add_heartbeats(silence, sources, arrivals)
    scenario: Part = {
        "name": f"derived-{seed}",
        "sources": sources,
        "arrivals": arrivals,
        "open": chance.random() < 0.3,
        "derived": {},
    }
    if chance.random() < 0.3:
        # Arrivals of different sources then have the same clock.
        scenario["tick"] = chance.choice(["0 seconds", "1 second"])
    if any("heartbeat" in source for source in sources.values()):
        scenario["clock_start"] = str(beginning)
    logs = source_logs(scenario)
    for name in ("first", "second", "third")[: chance.choice([1, 1, 1, 2, 2, 3])]:
        definition = _derivation(chance, logs)
        if is_silent:
            if len(sources) > 2 and silence.random() < 0.5:
                # Several of its bases can be silent.
                definition = {"union": {"of": [n for n in logs if n in sources]}}
            _set_idle(silence, scenario, definition, logs)
        logs[name] = derive(definition, logs, None)
        scenario["derived"][name] = definition
    name = list(logs)[-1]
    if changes and chance.random() < 0.6:
        scenario["derived"]["changes"] = _changes(chance, name, logs[name])
        scenario["transform"] = _over_changes(chance)
    else:
        scenario["transform"] = _transform(chance, name, logs[name])
    return scenario


def _source(chance: Random) -> Part:
    bound = f"{chance.choice([0, 1, 2, 4])} seconds"
    idle = f"{chance.choice([1, 3])} seconds"
    watermark: Part = chance.choice(
        [
            {"manual": {}},
            {"manual": {}},
            {"bounded_out_of_orderness": bound},
            {"bounded_out_of_orderness": bound},
            {"monotonous": {}},
            {"perfect": {}},
            {"bounded_out_of_orderness": {"bound": bound, "idle": idle}},
        ]
    )
    beats = {"heartbeat": "1 second"} if "idle" in str(watermark) else {}
    return {"event_time": "t", "columns": COLUMNS, "watermark": watermark, **beats}


def _arrivals(chance: Random, sources: Part, beginning: datetime, longest: int) -> list[Part]:
    found, open_ = list[Part](), list(sources)
    # Everything after an event of the far future is late.
    far = 0.1 / longest if chance.random() < 0.1 else 0
    for number in range(chance.randint(longest // 4, longest)):
        if not open_:
            break
        name = chance.choice(open_)
        now = beginning + timedelta(seconds=2 * number)
        item: Part = {"source": name}
        what = chance.random()
        if what < 0.4 / longest:
            item["end"] = True
            open_.remove(name)
        elif what < 0.35 and "manual" in sources[name]["watermark"]:
            item["watermark"] = _time(chance, now, -6, 3)
        elif what < 0.35 and "heartbeat" in sources[name]:
            item["clock"] = f"{chance.choice([1, 2, 4])} seconds"
        else:
            rows = range(chance.choice([0, 1, 1, 2, 3, 4]))
            item["rows"] = [_event(chance, now, far, f"{name}{number}{row}") for row in rows]
        found.append(item)
    return found


def _add_heartbeats(silence: Random, sources: Part, arrivals: list[Part]) -> list[Part]:
    """Let most sources record heartbeats. Return the arrivals with those of random silences."""
    for source in sources.values():
        if silence.random() < 0.8:
            source["heartbeat"] = "1 second"
    beating = [name for name, source in sources.items() if "heartbeat" in source]
    found, open_ = list[Part](), set(beating)
    for item in arrivals:
        if "end" in item:
            open_.discard(item["source"])
        found.append(item)
        if silence.random() < 0.5:
            silent = [name for name in sorted(open_) if silence.random() < 0.6]
            clocks = [f"{silence.choice([1, 1, 2])} seconds" for _ in silent]
            found += [{"source": n, "clock": c} for n, c in zip(silent, clocks, strict=True)]
    return found


def _set_idle(silence: Random, scenario: Part, definition: Part, logs: dict[str, EventLog]) -> None:
    """Let a join or a union leave out silent bases, if one of them records heartbeats.

    A union then usually has all sources, so that several of them can be silent.
    """
    ((kind, options),) = definition.items()
    if kind == "chain" or silence.random() < 0.2:
        return
    if kind == "union" and silence.random() < 0.8:
        every = [*options["of"], *(name for name in logs if name not in options["of"])]
        time = logs[every[0]].event_time
        if all(time not in logs[n].own or time == logs[n].event_time for n in every):
            options["of"] = every
    bases = options["of"] if kind == "union" else [options["left"], options["right"]]
    if any(_has_heartbeats(scenario, base) for base in bases):
        options["idle"] = f"{silence.choice([1, 2, 4])} seconds"


def _has_heartbeats(scenario: Part, name: str) -> bool:
    if name in scenario["sources"]:
        return "heartbeat" in scenario["sources"][name]
    ((kind, options),) = scenario["derived"][name].items()
    bases = {
        "chain": lambda: [options["source"]],
        "union": lambda: options["of"],
    }.get(kind, lambda: [options["left"], options["right"]])()
    return all(_has_heartbeats(scenario, base) for base in bases)


def _event(chance: Random, now: datetime, far: float, name: str) -> Part:
    what = chance.random()
    time = None if what < 0.04 else _FAR if what < 0.04 + far else _time(chance, now, -9, 4)
    return {
        "t": time,
        "k": chance.choice(["x", "x", "x", "y", None]),
        "v": chance.choice([1, 2, 2, None]),
        "id": name,
    }


def _time(chance: Random, now: datetime, least: int, most: int) -> str:
    beside = chance.choice([0, 0, 0, 0, 0, 0, 0, 0, -1, 1])
    seconds = timedelta(seconds=chance.randint(least, most), microseconds=beside)
    return str(now + seconds)


def _chain(chance: Random, name: str, log: EventLog) -> Part:
    texts, numbers = _columns(log, "string"), _columns(log, "int")
    aggregates: Part = {"n": "count"}
    if texts:
        aggregates["last_id"] = {"last": chance.choice(texts)}
    if numbers:
        aggregates["total"] = {"sum": chance.choice(numbers)}
    transform: Part = {
        "window": chance.choice(_WINDOWS[:-1]),
        "keys": ["k"],
        "allowed_lateness": f"{chance.choice([0, 2])} seconds",
        "aggregates": aggregates,
    }
    return {"chain": {"source": name, "transform": transform}}


def _changes(chance: Random, name: str, log: EventLog) -> Part:
    chain = _chain(chance, name, log)
    transform = chain["chain"]["transform"]
    # Only counts and sums subtract the retractions of this chain.
    transform["trigger"] = {"early": chance.choice(_FIRINGS[2:]), "late": {"arrival": {}}}
    return {"chain": {**chain["chain"], "rows": "changes"}}


def _over_changes(chance: Random) -> Part:
    return {
        "source": "changes",
        "window": chance.choice(_WINDOWS),
        "keys": chance.choice([["k"], []]),
        "allowed_lateness": f"{chance.choice([0, 5])} seconds",
        "trigger": {"early": chance.choice([{"arrival": {}}, {"every": "2 seconds"}])},
        "aggregates": {"n": "count", "total": {"sum": "n"}},
    }


def _columns(log: EventLog, kind: str) -> list[str]:
    return [c for c in log.own if log.columns[c] == kind and c != "k"]


def _derivation(chance: Random, logs: dict[str, EventLog]) -> Part:
    # The newest source is usually one of the bases.
    names = list(logs)
    left = names[-1] if chance.random() < 0.8 else chance.choice(names)
    if chance.random() < 0.2:
        return _chain(chance, left, logs[left])
    right = chance.choice([name for name in names if name != left])
    pair = [left, right] if chance.random() < 0.5 else [right, left]
    if chance.random() < 0.25:
        others = [name for name in names if name not in pair]
        of = [*pair, *others[: chance.choice([0, 0, 1])]]
        time = logs[of[0]].event_time
        # A column with the name of the union's event time must be one.
        if all(time not in logs[n].own or time == logs[n].event_time for n in of):
            return {"union": {"of": of}}
    if chance.random() < 0.2:
        return _as_of(chance, pair, logs)
    how = chance.choice(["inner", "left", "full"])
    low = chance.randint(-4, 3)
    ends = [low, chance.randint(low, 4)]
    window = {"tumbling": {"size": f"{chance.choice([2, 4, 5])} seconds"}}
    if chance.random() < 0.3:
        window["tumbling"]["offset"] = "1 second"
    join: Part = {
        "left": pair[0],
        "right": pair[1],
        "on": ["k"],
        "within": window if chance.random() < 0.3 else [f"{end} seconds" for end in ends],
        "how": how,
    }
    if chance.random() < 0.6:
        join["allowed_lateness"] = f"{chance.choice([0, 1, 3])} seconds"
    if how != "full" and chance.random() < 0.3:
        join["event_time"] = "left"
    if chance.random() < 0.2:
        columns = [
            chance.choice([*_columns(logs[name], "int"), *_columns(logs[name], "bigint")])
            for name in pair
        ]
        join["where"] = f"l['{columns[0]}'] <= r['{columns[1]}']"
    elif chance.random() < 0.2 and all("v" in logs[name].own for name in pair):
        join["on"] = ["k", "v"]
    _rename(chance, join, pair, logs)
    return {"join": join}


def _as_of(chance: Random, pair: list[str], logs: dict[str, EventLog]) -> Part:
    join: Part = {
        "left": pair[0],
        "right": pair[1],
        "on": ["k"],
        "how": chance.choice(["inner", "left"]),
    }
    if chance.random() < 0.6:
        join["allowed_lateness"] = f"{chance.choice([0, 1, 3])} seconds"
    if chance.random() < 0.3 and (numbers := _columns(logs[pair[1]], "int")):
        join["deleted"] = f"{chance.choice(numbers)} = 2"
    _rename(chance, join, pair, logs)
    return {"as_of": join}


def _rename(chance: Random, join: Part, pair: list[str], logs: dict[str, EventLog]) -> None:
    """Sometimes rename the columns of a join, and always if the default names could be taken."""
    own = [[c for c in logs[name].own if c not in join["on"]] for name in pair]
    if chance.random() < 0.2 or any(c[:2] in ("l_", "r_") for names in own for c in names):
        join["rename"] = {
            f"{name}.{c}": f"{letter}_{c}"
            for letter, name, columns in zip("lr", pair, own, strict=True)
            for c in columns
        }


def _transform(chance: Random, name: str, log: EventLog) -> Part:
    texts, numbers = _columns(log, "string") or ["k"], _columns(log, "int")
    transform: Part = {
        "source": name,
        "window": chance.choice(_WINDOWS),
        "keys": chance.choice([["k"], []]),
        "allowed_lateness": f"{chance.choice([0, 2, 5])} seconds",
        "accumulation": chance.choice(["accumulating", "discarding", "retracting"]),
        "aggregates": {
            "n": "count",
            "ids": {"collect": chance.choice(texts)},
            "first_id": {"first": chance.choice(texts)},
            "last_id": {"last": chance.choice(texts)},
            **({"total": {"sum": chance.choice(numbers)}} if numbers else {}),
        },
    }
    firings = {"early": chance.choice(_FIRINGS), "late": chance.choice(_FIRINGS)}
    if trigger := {when: firing for when, firing in firings.items() if firing is not None}:
        transform["trigger"] = trigger
    return transform
