"""Random cases: a small graph, and a sequence of operations on it. A case follows from its seed."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random

from helpers.graph.case import DERIVED, Part, below
from helpers.graph.definitions import define
from tidemark.base.errors import DefinitionError

Draw = Callable[["Drawn"], Part | list[Part] | None]
"""A function that draws an operation, or a few that show together what one of them may break."""

DISABLED: Mapping[str, str] = {}
"""The kinds of operations that are not drawn, because the product does not hold under them yet,
each with the fault."""

FAIL_POINTS = (
    *("log", "dead_letters", "timeline", "state", "quarantine", "results", "late", "panes"),
    *("published", "ledger", "erased", "erasure", "copies", "added", "counted", "watermarks"),
    *("schema", "columns", "letters", "promoted_log", "promoted_rows", "promoted_timeline"),
    *("promoted_begun", "promoted_end"),
    *("send", "sent", "committed", "fenced"),
)


class Drawn:
    """A case while it is drawn.

    Args:
        chance: decides everything.
        kinds: the kinds of operations, with their weights.
        node_kinds: the kinds of nodes.
    """

    def __init__(
        self, chance: Random, kinds: Mapping[str, float], node_kinds: tuple[str, ...]
    ) -> None:
        self.chance = chance
        self.kinds = kinds
        self.node_kinds = node_kinds
        self.sources: Part = {}
        self.nodes: Part = {}
        self.now = 0
        self.clock = 0
        self.ids = list[tuple[str, str]]()
        self.operations = list[Part]()

    def assets(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node["kind"] == "asset"]

    def choose_asset(self) -> str | None:
        assets = self.assets()
        return self.chance.choice(assets) if assets else None


def random_case(
    seed: int,
    kinds: Mapping[str, float] | None = None,
    *,
    with_windows: bool = True,
    engine_dies: bool = False,
) -> Part:
    """Return the case of a seed.

    Args:
        kinds: the weights of the kinds of operations; by default, all that are not disabled.
        with_windows: false for a case that needs no engine: it has only sources.
        engine_dies: true if the engine is killed during some operations.
    """
    chance = Random(seed)
    weights = kinds or {name: w for name, w in KINDS.items() if name not in DISABLED}
    if not with_windows:
        weights = {name: w for name, w in weights.items() if name not in NEED_ENGINE}
    drawn = Drawn(chance, weights, SOURCES if not with_windows else (*SOURCES, *WINDOWS))
    _draw_graph(drawn)
    first = {"sources": deepcopy(drawn.sources), "nodes": deepcopy(drawn.nodes)}
    _draw_operations(drawn)
    _widen_erasures(drawn)
    _move_backfills(drawn)
    if with_windows and chance.random() < MARTS:
        first["nodes"] |= _add_mart(drawn)
    if engine_dies:
        _add_deaths_of_engine(drawn)
    return {"name": f"graph-{seed}", **first, "operations": drawn.operations}


# The graph


def _draw_graph(drawn: Drawn) -> None:
    chance = drawn.chance
    for name in "ab"[: chance.choice([1, 2, 2])]:
        drawn.sources[name] = {"bound": chance.choice([0, 1, 2])}
    size = chance.choice([1, 2, 2, 3, 3, 4])
    kinds = [chance.choice(drawn.node_kinds) for _ in range(40)]
    if "chain" in drawn.node_kinds and chance.random() < 0.1:
        # Several levels of windows are too rare by chance.
        size, kinds = len(_TOWER), [*_TOWER, *kinds]
    for kind in kinds:
        if len(drawn.nodes) == size:
            return
        name = f"n{len(drawn.nodes)}"
        node = _draw_node(drawn, kind)
        if node is None:
            continue
        try:
            define(drawn.sources, {**drawn.nodes, name: node})
        except (DefinitionError, StopIteration):
            continue
        drawn.nodes[name] = node


def _draw_node(drawn: Drawn, kind: str) -> Part | None:
    chance = drawn.chance
    logs = [*drawn.sources, *(n for n, d in drawn.nodes.items() if d["kind"] in DERIVED)]
    # The newest log is usually the base.
    newest = logs[-1] if chance.random() < 0.7 else chance.choice(logs)
    if kind == "asset":
        return _draw_asset(chance, newest)
    if kind == "row_asset":
        return {"kind": kind, "source": newest, "function": chance.choice(["all", "some"])}
    if kind in ("rollup", "chain", "sink"):
        return _draw_above_windows(drawn, kind)
    others = [name for name in logs if name != newest]
    if not others:
        return None
    pair = [newest, chance.choice(others)]
    chance.shuffle(pair)
    if kind == "union":
        return {"kind": kind, "of": pair}
    node = {"kind": kind, "left": pair[0], "right": pair[1]}
    if kind == "as_of":
        how = chance.choice(["inner", "left"])
        return {**node, "how": how, "lateness": chance.choice([0, 2])}
    low = chance.randint(-3, 1)
    how = chance.choice(["inner", "left", "left", "full"])
    lateness = chance.choice([0, 2]) if how != "inner" else None
    within = [low, chance.randint(low, 3)]
    return {**node, "within": within, "how": how, "lateness": lateness}


def _draw_above_windows(drawn: Drawn, kind: str) -> Part | None:
    """Return a node that reads windows."""
    chance = drawn.chance
    bases = ("asset", "rollup") if kind == "chain" else ("asset",)
    windowed = [
        name
        for name, node in drawn.nodes.items()
        if node["kind"] in bases and (kind == "sink" or "session" not in node)
    ]
    published = [node["of"] for node in drawn.nodes.values() if node["kind"] == "sink"]
    if kind == "sink":
        windowed = [name for name in windowed if name not in published]
    if not windowed:
        return None
    of = windowed[-1] if chance.random() < 0.7 else chance.choice(windowed)
    if kind == "sink":
        return {"kind": kind, "of": of}
    if kind == "rollup":
        return {"kind": kind, "of": of, "size": 2 * drawn.nodes[of]["size"]}
    return {"kind": kind, "of": of, "rows": chance.choice(["final", "final", "changes"])}


_TOWER = ("asset", "chain", "asset", "chain", "asset")
"""The kinds of nodes of a graph with several levels of windows."""
SOURCES = ("union", "join", "join", "as_of", "row_asset")
WINDOWS = (*(("asset",) * 5), "rollup", "sink", "sink", *(("chain",) * 3))
"""The kinds of nodes, as often as they are drawn."""


def _draw_asset(chance: Random, source: str) -> Part:
    node: Part = {
        "kind": "asset",
        "source": source,
        "size": chance.choice([2, 3, 4]),
        "lateness": chance.choice([0, 2, 4]),
        "keys": chance.choice([["k"], []]),
        "function": chance.choice(["all", "all", "some"]),
        "most": chance.choice([None, None, None, 1, 2]),
    }
    shape = chance.random()
    if shape < 0.2:
        node["slide"] = node["size"] // 2 or 1
    elif shape < 0.4:
        node["session"] = chance.choice([1, 2])
        node["most"] = None
    return node


# The operations


KILLED = 0.12
"""The share of operations that are killed, if this kind has the weight 1."""


def _draw_operations(drawn: Drawn) -> None:
    chance = drawn.chance
    for name in drawn.sources:
        _append(drawn, _arrive(drawn, name))
    names, weights = list(drawn.kinds), list(drawn.kinds.values())
    count = chance.randint(4, 10)
    while len(drawn.operations) < count + len(drawn.sources):
        kind = chance.choices(names, weights)[0]
        operations = KIND_DRAWS[kind](drawn) or []
        for operation in operations if isinstance(operations, list) else [operations]:
            _append(drawn, operation)


def _append(drawn: Drawn, operation: Part) -> None:
    chance = drawn.chance
    share = chance.choice([0.0, 0.6, 1.0, 1.0])
    then = [name for name in drawn.nodes if chance.random() < share]
    operation = {"then": then, **operation}
    # Some progress is that of a part of the graph.
    kills = drawn.kinds.get("kill")
    if kills and chance.random() < KILLED * kills:
        operation["kill"] = chance.choice(FAIL_POINTS)
    drawn.operations.append(operation)


def _arrive(
    drawn: Drawn, source: str, ages: tuple[int, int] = (-1, 2), *, is_alone: bool = False
) -> Part:
    """Return an arrival of a source.

    Args:
        ages: the seconds between its events and now, at least and at most.
        is_alone: true for an arrival of one event.
    """
    chance = drawn.chance
    drawn.now += chance.choice([0, 1, 2, 4])
    drawn.clock = max(drawn.clock + 1, drawn.now)
    rows = list[Part]()
    for _ in range(1 if is_alone else chance.choice([1, 1, 2, 3])):
        number = len(drawn.ids)
        row: Part = {
            "t": drawn.now - chance.randint(*ages),
            "k": chance.choice(["x", "x", "y"]),
            "v": chance.choice([1, 2, 3, None]),
            "id": f"{source}{number}",
        }
        for name in drawn.sources[source].get("more", {}):
            row[name] = chance.choice([7, None])
        drawn.ids.append((source, row["id"]))
        rows.append(row)
    return {"do": "arrive", "source": source, "clock": drawn.clock, "rows": rows}


def _on_time(drawn: Drawn) -> Part:
    return _arrive(drawn, drawn.chance.choice(list(drawn.sources)))


def _late(drawn: Drawn) -> Part:
    return _arrive(drawn, drawn.chance.choice(list(drawn.sources)), (3, 6))


def _too_late(drawn: Drawn) -> Part:
    return _arrive(drawn, drawn.chance.choice(list(drawn.sources)), (8, 14))


def _far(drawn: Drawn, source: str | None = None) -> Part:
    operation = _arrive(drawn, source or drawn.chance.choice(list(drawn.sources)))
    operation["rows"][0]["t"] = 2_000_000_000
    return operation


def _beat(drawn: Drawn) -> Part:
    drawn.clock += drawn.chance.choice([3, 6])
    source = drawn.chance.choice(list(drawn.sources))
    return {"do": "beat", "source": source, "clock": drawn.clock, "silence": 3}


def _on_asset(do: str) -> Draw:
    def draw(drawn: Drawn) -> Part | None:
        asset = drawn.choose_asset()
        return None if asset is None else {"do": do, "node": asset}

    return draw


def _backfill(drawn: Drawn) -> Part | None:
    asset, chance = drawn.choose_asset(), drawn.chance
    if asset is None:
        return None
    operation: Part = {"do": "backfill", "node": asset, "late": chance.random() < 0.5}
    if chance.random() < 0.6:
        start = chance.randint(-4, drawn.now)
        operation["range"] = [start, start + chance.randint(2, 8)]
    return operation


def _redefine(drawn: Drawn, node: str, to: Part) -> Part | None:
    changed = deepcopy(drawn.nodes)
    changed[node] |= to
    if changed == drawn.nodes:
        return None
    try:
        define(drawn.sources, changed)
    except DefinitionError:
        return None
    drawn.nodes = changed
    return {"do": "redefine", "node": node, "to": to}


def _lateness(drawn: Drawn, choices: list[int]) -> list[Part] | None:
    asset = drawn.choose_asset()
    if asset is None:
        return None
    before = drawn.nodes[asset]["lateness"]
    after = drawn.chance.choice(choices) + before
    changed = None if after < 0 else _redefine(drawn, asset, {"lateness": after})
    return None if changed is None else [changed, _late(drawn), _on_time(drawn)]


def _lateness_up(drawn: Drawn) -> list[Part] | None:
    return _lateness(drawn, [2, 4])


def _lateness_down(drawn: Drawn) -> list[Part] | None:
    return _lateness(drawn, [-4, -2])


def _change(
    drawn: Drawn,
    kinds: tuple[str, ...],
    change: Callable[[Random, Part], Part],
    *,
    of_sessions: bool = True,
) -> Part | None:
    """Return the change of a node's definition.

    Args:
        of_sessions: false if assets with sessions are not changed.
    """
    names = [
        n
        for n, d in drawn.nodes.items()
        if d["kind"] in kinds and (of_sessions or "session" not in d)
    ]
    if not names:
        return None
    name = drawn.chance.choice(names)
    return _redefine(drawn, name, change(drawn.chance, drawn.nodes[name]))


def _function(drawn: Drawn) -> Part | None:
    return _change(
        drawn,
        ("asset",),
        lambda _, node: {"function": "some" if node["function"] == "all" else "all"},
        # The oracle does not know which events of a session a correction counts again.
        of_sessions=False,
    )


def _row_function(drawn: Drawn) -> Part | None:
    return _change(
        drawn,
        ("row_asset",),
        lambda _, node: {"function": "some" if node["function"] == "all" else "all"},
    )


def _within(drawn: Drawn) -> Part | None:
    return _change(
        drawn,
        ("join",),
        lambda chance, node: {
            "within": [node["within"][0] - chance.choice([0, 2]), node["within"][1] + 2]
        },
    )


def _join_lateness(drawn: Drawn) -> Part | None:
    return _change(
        drawn,
        ("join", "as_of"),
        lambda _, node: {"lateness": None if node["lateness"] is None else 2 - node["lateness"]},
    )


def _aggregate(drawn: Drawn) -> Part | None:
    return _change(drawn, ("asset",), lambda _, node: {"greatest": not node.get("greatest", False)})


def _keys(drawn: Drawn) -> Part | None:
    return _change(drawn, ("asset",), lambda _, node: {"keys": [] if node["keys"] else ["k"]})


def _most(drawn: Drawn) -> Part | None:
    return _change(
        drawn,
        ("asset",),
        lambda chance, _: {"most": chance.choice([None, 1, 3])},
        # A session in quarantine keeps the published sessions that it merged.
        of_sessions=False,
    )


def _rebuild(drawn: Drawn) -> list[Part] | None:
    asset = drawn.choose_asset()
    if asset is None:
        return None
    to = drawn.chance.choice([{"greatest": True}, {"lateness": 2}, {"function": "some"}])
    changed = _redefine(drawn, asset, to)
    return [*([] if changed is None else [changed]), {"do": "rebuild", "node": asset}]


def _rebuild_source(drawn: Drawn) -> Part | None:
    names = [n for n, d in drawn.nodes.items() if d["kind"] in DERIVED]
    return {"do": "rebuild_source", "node": drawn.chance.choice(names)} if names else None


def _promote(drawn: Drawn) -> list[Part] | None:
    rebuilt = _rebuild(drawn)
    return None if rebuilt is None else [*rebuilt, {"do": "promote", "node": rebuilt[-1]["node"]}]


def _erase(drawn: Drawn) -> Part | None:
    if not drawn.ids:
        return None
    source, row = drawn.chance.choice(drawn.ids)
    return {"do": "erase", "source": source, "id": row}


def _erase_alone(drawn: Drawn) -> list[Part]:
    """Return an event that is alone in its windows and its day, and its erasure.

    All nodes take the event before it is erased, so that the erasure deletes published windows.
    """
    source = drawn.chance.choice(list(drawn.sources))
    drawn.now += _ALONE_SECONDS
    alone = _arrive(drawn, source, is_alone=True)
    drawn.now += _ALONE_SECONDS
    # Its windows close if the watermarks of all sources pass them.
    after = [_arrive(drawn, name) for name in drawn.sources]
    after[-1]["then"] = list(drawn.nodes)
    return [alone, *after, {"do": "erase", "source": source, "id": alone["rows"][0]["id"]}]


def _erase_unloaded(drawn: Drawn) -> Part | None:
    operation = _erase(drawn)
    if operation is None:
        return None
    reached = below(drawn.nodes, [operation["source"]])
    if not reached:
        return None
    return {**operation, "unloaded": [drawn.chance.choice(reached)]}


def _lower(drawn: Drawn) -> list[Part]:
    source = drawn.chance.choice(list(drawn.sources))
    before = [] if drawn.chance.random() < 0.2 else [_far(drawn, source), _arrive(drawn, source)]
    drawn.sources[source]["skew"] = True
    return [*before, {"do": "lower", "source": source}, _arrive(drawn, source)]


def _drop(drawn: Drawn) -> Part | None:
    if not drawn.nodes:
        return None
    return {"do": "drop", "node": drawn.chance.choice(list(drawn.nodes))}


def _recreate(drawn: Drawn) -> Part:
    return {"do": "recreate", "source": drawn.chance.choice(list(drawn.sources))}


def _restore(drawn: Drawn, names: list[str], source: str) -> list[Part]:
    """Return a backup, arrivals, the restoration of tables, and further arrivals.

    Some of the further arrivals come before anything else continues from the restored tables.
    """
    chance = drawn.chance
    before = [_arrive(drawn, source) for _ in range(chance.choice([1, 2]))]
    restore: Part = {"do": "restore", "names": names, "again": chance.random() < 0.7}
    restore["running"] = chance.random() < 0.3
    if chance.random() < 0.3:
        restore["first"] = _arrive(drawn, source)
    after = [_arrive(drawn, source) for _ in range(chance.choice([0, 1, 2]))]
    return [{"do": "backup"}, *before, restore, *after]


def _restore_all(drawn: Drawn) -> list[Part]:
    return _restore(drawn, [], drawn.chance.choice(list(drawn.sources)))


def _restore_one(drawn: Drawn) -> list[Part]:
    name = drawn.chance.choice([*drawn.sources, *drawn.nodes])
    source = name if name in drawn.sources else drawn.chance.choice(list(drawn.sources))
    return _restore(drawn, [name], source)


def _column(drawn: Drawn) -> list[Part] | None:
    source = drawn.chance.choice(list(drawn.sources))
    more = drawn.sources[source].setdefault("more", {})
    if more:
        return None
    sources = deepcopy(drawn.sources)
    sources[source]["more"]["extra"] = "BIGINT"
    try:
        define(sources, drawn.nodes)
    except DefinitionError:
        return None
    drawn.sources = sources
    return [{"do": "column", "source": source, "name": "extra"}, _arrive(drawn, source)]


def _retype(drawn: Drawn) -> Part:
    source, removed = drawn.chance.choice(list(drawn.sources)), drawn.chance.random() < 0.5
    return {"do": "retype", "source": source, "removed": removed}


def _old(drawn: Drawn) -> Part | list[Part] | None:
    """Return progress by a process that loaded the definitions before their last change."""
    names = [n for n, d in drawn.nodes.items() if d["kind"] in DERIVED]
    if not names:
        return None
    old: Part = {"do": "old", "node": drawn.chance.choice(names)}
    return [*(_column(drawn) or []), old]


def _topic(drawn: Drawn) -> Part | None:
    """Return the recreation of a sink's topic."""
    names = [n for n, d in drawn.nodes.items() if d["kind"] == "sink"]
    return {"do": "topic", "node": drawn.chance.choice(names)} if names else None


def _maintain(drawn: Drawn) -> Part:
    return {"do": "maintain", "vacuum": drawn.chance.random() < 0.5}


# Changes of drawn operations


def _widen_erasures(drawn: Drawn) -> None:
    """Let some erasures delete all rows of a key, so that whole windows disappear."""
    for operation in drawn.operations:
        if operation["do"] == "erase" and drawn.chance.random() < ERASED_KEYS:
            del operation["id"]
            operation["key"] = drawn.chance.choice(["x", "x", "y"])


def _move_backfills(drawn: Drawn) -> None:
    """Let some backfills recompute windows that have events, early or late ones."""
    chance, times = drawn.chance, list[int]()
    for operation in drawn.operations:
        times += [row["t"] for row in operation.get("rows", ())]
        if "range" in operation and times and chance.random() < MOVED_BACKFILLS:
            start = chance.choice(times) - chance.randint(0, 3)
            operation["range"] = [start, start + chance.randint(2, 8)]


_ALONE_SECONDS = 20
"""How long the windows, the lateness and the day of an event last at most."""
ERASED_KEYS = 0.4
"""The share of erasures of all rows of a key."""
MOVED_BACKFILLS = 0.6
"""The share of backfills of a range that has events."""

MARTS = 0.2
"""The share of graphs with windows that have a mart. A build takes as long as several runs."""


BUILDS_BEFORE_ERASURES = 0.6
"""The share of graphs with a mart and erasures that build the mart just before an erasure."""


def _add_mart(drawn: Drawn) -> Part:
    """Add a mart and its builds to a case, and return the node; nothing if there are no windows."""
    chance = drawn.chance
    windowed = [n for n, d in drawn.nodes.items() if d["kind"] in ("asset", "rollup")]
    if not windowed:
        return {}
    for operation in drawn.operations:
        if operation["do"] == "restore" and not operation["names"]:
            operation["marts"] = chance.random() < 0.5
    # A late build finds more changes; the last one follows at the end of the case.
    places = chance.choices(range(1, len(drawn.operations) + 1), k=chance.choice([1, 2]))
    erasures = [n for n, operation in enumerate(drawn.operations) if operation["do"] == "erase"]
    if erasures and chance.random() < BUILDS_BEFORE_ERASURES:
        places[0] = chance.choice(erasures)
    for place in sorted(places, reverse=True):
        build: Part = {"do": "build", "node": "mart", "then": []}
        if chance.random() < 0.3:
            build["interrupted"] = "dbt"
        drawn.operations.insert(place, build)
    return {"mart": {"kind": "mart", "of": chance.choice(windowed)}}


def _add_deaths_of_engine(drawn: Drawn) -> None:
    """Let the engine die once or twice, while it computes something if possible."""
    chance, operations = drawn.chance, drawn.operations
    builds = [each for each in operations if each["do"] == "build"]
    computing = [each for each in operations if each["then"] or each["do"] in _COMPUTE]
    for operation in chance.sample(operations, min(len(operations), chance.choice([1, 2]))):
        if computing and chance.random() < 0.9:
            operation = chance.choice(computing)
        operation["engine"] = chance.choice([1, 2, 3, 5, 8, 13, 21, 34])
    if builds and chance.random() < 0.5:
        chance.choice(builds)["interrupted"] = "engine"


_COMPUTE = (
    *("backfill", "correct", "rebuild", "rebuild_source", "promote", "rollback", "release"),
    *("erase", "lower", "restore"),
)
"""The operations that compute something, apart from the progress of nodes."""


KIND_DRAWS: Mapping[str, Draw] = {
    "on time": _on_time,
    "late": _late,
    "too late": _too_late,
    "far in the future": _far,
    "heartbeat": _beat,
    "correct": _on_asset("correct"),
    "backfill": _backfill,
    "lateness up": _lateness_up,
    "lateness down": _lateness_down,
    "function": _function,
    "row function": _row_function,
    "within": _within,
    "join lateness": _join_lateness,
    "aggregate": _aggregate,
    "keys": _keys,
    "expectation": _most,
    "rebuild": _rebuild,
    "rebuild a source": _rebuild_source,
    "promote": _promote,
    "rollback": _on_asset("rollback"),
    "release": _on_asset("release"),
    "discard": _on_asset("discard"),
    "erase": _erase,
    "erase alone": _erase_alone,
    "erase without a definition": _erase_unloaded,
    "lower": _lower,
    "drop": _drop,
    "recreate": _recreate,
    "restore all": _restore_all,
    "restore one": _restore_one,
    "column": _column,
    "old process": _old,
    "column changed": _retype,
    "topic": _topic,
    "maintain": _maintain,
    "kill": _on_time,
}

KINDS: Mapping[str, float] = {
    **dict.fromkeys(KIND_DRAWS, 1.0),
    "on time": 8.0,
    "late": 4.0,
    "too late": 3.0,
    "heartbeat": 3.0,
    "backfill": 2.0,
    "maintain": 0.5,
}
"""The weight of each kind of operation."""

NEED_ENGINE = (
    *("correct", "backfill", "lateness up", "lateness down", "function", "aggregate", "keys"),
    *("expectation", "rebuild", "promote", "rollback", "release", "discard", "erase"),
    *("erase alone", "erase without a definition", "lower", "topic", "maintain"),
)
"""The kinds of operations that need windows or an engine."""
