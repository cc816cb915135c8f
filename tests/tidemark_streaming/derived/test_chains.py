"""A chain has each window once it is final, for any cut of arrivals into runs and ingests."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.connect.client import SparkConnectClient

from helpers.model.chain_oracle import (
    Assign,
    chain_by_definition,
    changes_by_definition,
    net_by_definition,
    net_rows,
)
from helpers.model.join_oracle import BaseArrival, derived_watermarks
from helpers.model.telling import LONG
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import INFINITY, format_instant
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain, chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.expectations.general import between
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.firings import Count, EachArrival
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.quality.quarantine import Choice, release_windows
from tidemark.run import commit
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.event_log import log
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import to_dicts, to_micros
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.snapshot.snapshot import Snapshot

SECOND = 1_000_000
ORDERS = Source(
    name="orders",
    columns={"t": "TIMESTAMP", "k": "STRING", "v": "INT"},
    event_time="t",
    watermark=BoundedOutOfOrderness("2 seconds"),
)


def aligned(size: int, step: int) -> Assign:
    def assign(time: int) -> list[tuple[int, int]]:
        last = time // step * step
        return [(start, start + size) for start in range(last, time - size, -step)]

    return assign


WINDOWS: list[tuple[Window, Assign]] = [
    (Tumbling("5 seconds"), aligned(5 * SECOND, 5 * SECOND)),
    (Session("3 seconds"), lambda t: [(t, t + 3 * SECOND)]),
    (Sliding("6 seconds", "3 seconds"), aligned(6 * SECOND, 3 * SECOND)),
]


SPECS = [
    {"tumbling": {"size": "5 seconds"}},
    {"session": {"gap": "3 seconds"}},
    {"sliding": {"size": "6 seconds", "slide": "3 seconds"}},
]
"""The windows in the format of scenarios."""


def asset(name: str, source: Source, window: Window, value: str, **given: Any) -> WindowedTransform:  # noqa: ANN401
    options: dict[str, Any] = {"allowed_lateness": 0, **given}
    return WindowedTransform(
        name=name,
        description="",
        source=source,
        keys=("k",),
        window=window,
        aggregates={"n": agg.count(), "v": agg.sum(value)},
        function=lambda rows: rows,
        **options,
    )


def random_arrivals(chance: random.Random) -> list[ScenarioArrival]:
    """Return random arrivals, the last of which ends the source."""
    found, clock = list[ScenarioArrival](), 0
    for number in range(chance.randint(6, 12)):
        clock += chance.randint(0, 3)
        rows = tuple(
            (
                (chance.randint(0, 6) + 2 * number) * SECOND if chance.random() < 0.95 else None,
                chance.choice(["a", "a", "b", None]),
                chance.randint(-9, 9),
            )
            for _ in range(chance.choice([0, 1, 2, 4]))
        )
        found.append(ScenarioArrival(rows, clock))
    return [*found, ScenarioArrival((), clock + 1, ends=True)]


class KilledError(Exception):
    pass


@contextmanager
def killed(chance: random.Random, module: Any, points: Sequence[str]) -> Iterator[None]:  # noqa: ANN401
    """Kill what runs within at one of some fail points, or at none."""
    point = chance.choice([*points, *(None for _ in points)])

    def reach(name: str) -> None:
        if name == point:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        patch.setattr(module, "pass_fail_point", reach)
        yield


def derived(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


def waiting_runs(warehouse: Warehouse, source: DerivedSource) -> int:
    """Return the runs of its asset that a chain has not taken, as `tidemark status` shows them."""
    assert isinstance(source.derivation, Chain)
    settings = Settings(warehouse=warehouse.location, database=warehouse.database)
    lag = Snapshot(settings).read_source(source).lag_arrivals
    return lag.get(source.derivation.asset.name, 0)


def take(warehouse: Warehouse, source: DerivedSource, batch: int | None = None) -> int:
    """Ingest a chain, and return the number of its new arrivals."""
    waiting = waiting_runs(warehouse, source)
    found = [
        arrival
        for commit in ingest(warehouse, derived(warehouse, source), batch=batch)
        for arrival in commit.arrivals
    ]
    changes = [a for a in found if Step.of_position(a.position).change is not None]
    assert len(changes) == waiting
    assert waiting_runs(warehouse, source) == 0
    return len(found)


def run_in_cuts(
    warehouse: Warehouse,
    arrivals: Sequence[ScenarioArrival],
    stages: Sequence[tuple[WindowedTransform, DerivedSource]],
    chance: random.Random,
    *,
    changing: bool = False,
) -> None:
    """Ingest the source, the assets and their chains in random cuts and with random kills.

    Args:
        changing: true to change windows of the first asset without an arrival, too.
    """
    given = 0
    while given < len(arrivals):
        given += chance.choice([1, 1, 2] if changing else [1, 2, 5])
        list(ingest(warehouse, MemoryConnector(ORDERS, arrivals[:given]), batch=None))
        for transform, source in stages:
            own = warehouse.has_table(transform.source.log_table)
            if not own or not Log(warehouse, transform.source).read_timeline():
                break
            with killed(chance, commit, ("state", "published", "ledger")):
                if changing and transform is stages[0][0] and given < len(arrivals):
                    change_at_random(warehouse, transform, chance)
                if chance.random() < 0.15:
                    backfill(warehouse, transform)
                elif chance.random() < 0.8:
                    incremental(warehouse, transform, limit=chance.choice([1, 3, None]))
            with killed(chance, log, ("log", "dead_letters", "timeline")):
                if chance.random() < 0.6:
                    take(warehouse, source, chance.choice([1, 2, None]))
    for transform, source in stages:
        incremental(warehouse, transform)
        take(warehouse, source)


def change_at_random(
    warehouse: Warehouse, transform: WindowedTransform, chance: random.Random
) -> None:
    """Change windows without an arrival, or not at all."""
    what = chance.random()
    if what < 0.3 and warehouse.has_table(transform.published_table):
        correct(warehouse, transform)
    elif what < 0.6:
        late_events = chance.choice(["include", "include", "exclude"])
        start = chance.choice([None, 0, 5 * SECOND])
        end = None if start is None else start + 10 * SECOND
        backfill(warehouse, transform, start, end, late_events=late_events)


def rows_of(warehouse: Warehouse, source: Source) -> list[dict[str, Any]]:
    table = warehouse.load_rows(source.log_table)
    return to_dicts(table.sort_by([("arrival", "ascending"), ("position", "ascending")]))


FAST = (3, 10)
"""Windows become final at an instant of the watermark, and sessions only after their gap."""
SLOW = [n for n in range(LONG or 4) if n not in FAST]
"""One of each kind of window, or as many as `TIDEMARK_TEST_EXAMPLES`."""
SEEDS = mostly_nightly([*FAST, *SLOW])


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_of_chains_are_their_definition_in_any_cut(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(seed)
    window, assign = WINDOWS[seed % len(WINDOWS)]
    lateness = chance.choice([0, 2 * SECOND])
    fives = asset("fives", ORDERS, window, "v", allowed_lateness=lateness)
    first = chain(name="first", of=fives)
    tens = asset("tens", first, Tumbling("10 seconds"), "v")
    second = chain(name="second", of=tens)
    given = random_arrivals(chance)
    run_in_cuts(warehouse, given, [(fives, first), (tens, second)], chance)

    base = [
        BaseArrival([dict(zip("tkv", row, strict=True)) for row in one.rows], a.before, a.after)
        for a, one in zip(Log(warehouse, ORDERS).read_timeline(), given, strict=True)
    ]
    expected = chain_by_definition(base, assign=assign, gap=window.merge_gap, lateness=lateness)
    base = check(warehouse, first, base, expected)
    expected = chain_by_definition(
        base, assign=aligned(10 * SECOND, 10 * SECOND), gap=0, lateness=0
    )
    check(warehouse, second, base, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_of_changes_is_its_definition_in_any_cut(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(100 + seed)
    window, _ = WINDOWS[seed % len(WINDOWS)]
    lateness = chance.choice([0, 4])
    early, trigger = chance.choice(
        [
            (None, Trigger()),
            ({"arrival": {}}, Trigger(early=EachArrival())),
            ({"count": 2}, Trigger(early=Count(2))),
        ]
    )
    given: dict[str, Any] = {"allowed_lateness": lateness * SECOND, "trigger": trigger}
    fives = asset("fives", ORDERS, window, "v", **given)
    first = chain(name="first", of=fives, rows="changes")
    tens = asset("tens", first, Tumbling("10 seconds"), "v")
    second = chain(name="second", of=tens)
    arrivals = random_arrivals(chance)
    run_in_cuts(warehouse, arrivals, [(fives, first), (tens, second)], chance)

    names = ("t", "k", "v")
    items = [
        {
            "rows": [
                dict(zip(names, (format_instant(row[0]), *row[1:]), strict=True))
                for row in one.rows
            ]
        }
        for one in arrivals[:-1]
    ]
    columns = dict(zip(names, ("timestamp", "string", "int"), strict=True))
    scenario = {
        "source": {
            "event_time": "t",
            "columns": columns,
            "watermark": {"bounded_out_of_orderness": "2 seconds"},
        },
        "transform": {
            "window": SPECS[seed % len(WINDOWS)],
            "keys": ["k"],
            "allowed_lateness": f"{lateness} seconds",
            "trigger": {} if early is None else {"early": early},
            "accumulation": "retracting",
            "aggregates": {"n": "count", "v": {"sum": "v"}},
        },
    }
    rows = rows_of(warehouse, first)
    found = [
        (
            r["arrival"],
            *(format_instant(r["window_first"]), format_instant(r["window_last"] + 1)),
            *(r["k"], r["retraction"], r["n"], r["v"]),
        )
        for r in rows
    ]
    assert sorted(found, key=str) == changes_by_definition(scenario, items)
    for row, following in pairwise(rows):
        if row["retraction"]:
            assert (row["arrival"], row["k"]) == (following["arrival"], following["k"])
    base = Log(warehouse, ORDERS).read_timeline()
    assert [a.after for a in Log(warehouse, first).read_timeline()] == [a.after for a in base]
    windows = warehouse.load_rows(tens.published_table)
    starts = to_micros(windows["window_start"])
    assert {
        (start, row["k"]): (row["n"], row["v"])
        for start, row in zip(starts, windows.to_pylist(), strict=True)
    } == net_by_definition(rows, 10 * SECOND)
    for each in (first, second):
        assert check_derived_parity(warehouse, each).is_equal


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly(range(LONG or 3), LONG or 1))
def test_changes_without_an_arrival_are_steps_of_a_chain_of_changes(
    warehouse: Warehouse, seed: int
) -> None:
    chance = random.Random(200 + seed)
    window, _ = WINDOWS[seed % len(WINDOWS)]
    trigger = chance.choice(
        [Trigger(), Trigger(early=EachArrival()), Trigger(early=Count(2), late=EachArrival())]
    )
    given: dict[str, Any] = {"allowed_lateness": chance.choice([0, SECOND]), "trigger": trigger}
    fives = asset("fives", ORDERS, window, "v", **given)
    first = chain(name="first", of=fives, rows="changes")
    tens = asset("tens", first, Tumbling("10 seconds"), "v")
    second = chain(name="second", of=tens)
    arrivals = random_arrivals(chance)
    run_in_cuts(warehouse, arrivals, [(fives, first), (tens, second)], chance, changing=True)

    rows = rows_of(warehouse, first)
    assert net_rows(rows) == sorted(published(warehouse, fives), key=str)
    windows = published(warehouse, tens)
    expected = net_by_definition(rows, 10 * SECOND)
    assert {(start, key): (n, v) for start, _, key, n, v in windows} == expected
    for each in (first, second):
        assert check_derived_parity(warehouse, each).is_equal
    assert check_parity(warehouse, tens).is_equal


def published(warehouse: Warehouse, transform: WindowedTransform) -> list[tuple[Any, ...]]:
    table = warehouse.load_rows(transform.published_table)
    bounds = (to_micros(table[name]) for name in ("window_start", "window_end"))
    rows = zip(*bounds, table.to_pylist(), strict=True)
    return [(start, end, row["k"], row["n"], row["v"]) for start, end, row in rows]


def check(
    warehouse: Warehouse,
    source: DerivedSource,
    base: Sequence[BaseArrival],
    expected: Sequence[tuple[Any, ...]],
) -> list[BaseArrival]:
    """Compare a chain with its expected rows, and return its arrivals for a further chain."""
    rows, timeline = rows_of(warehouse, source), Log(warehouse, source).read_timeline()
    found = [
        (r["arrival"], r["window_first"], r["window_last"] + 1, r["k"], r["n"], r["v"])
        for r in rows
    ]
    assert found == list(expected)
    steps = [(0, n) for n in range(len(base))]
    assert [a.after for a in timeline] == derived_watermarks(
        steps, [base], source.derivation.look_back
    )
    assert timeline[-1].after == INFINITY
    assert all(r["watermark"] is None or r["window_last"] >= r["watermark"] for r in rows)
    assert check_derived_parity(warehouse, source).is_equal
    return [
        BaseArrival(
            [{**r, "t": r["window_last"]} for r in rows if r["arrival"] == a.arrival],
            a.before,
            a.after,
        )
        for a in timeline
    ]


def at(*seconds: int, key: str = "a") -> tuple[tuple[Any, ...], ...]:
    return tuple((second * SECOND, key, 1) for second in seconds)


def arrive(warehouse: Warehouse, *arrivals: tuple[tuple[Any, ...], ...]) -> None:
    given = [ScenarioArrival(rows, 0) for rows in arrivals]
    list(ingest(warehouse, MemoryConnector(ORDERS, given), batch=None))


def change_by_correction(warehouse: Warehouse, fives: WindowedTransform) -> None:
    assert correct(warehouse, fives) is not None


def change_by_backfill(warehouse: Warehouse, fives: WindowedTransform) -> None:
    backfill(warehouse, fives, late_events="include")


@pytest.mark.parametrize("change", mostly_nightly([change_by_correction, change_by_backfill]))
def test_a_chain_refuses_windows_that_changed_without_an_arrival(
    warehouse: Warehouse, change: Callable[[Warehouse, WindowedTransform], None]
) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    hours = chain(name="hours", of=fives)
    # The last event of the second arrival is too late.
    arrivals = [at(1, 9), at(20, 2), at(30)]
    arrive(warehouse, *arrivals[:2])
    assert take(warehouse, hours) == 0
    incremental(warehouse, fives)
    assert take(warehouse, hours) == 2
    backfill(warehouse, fives)
    assert take(warehouse, hours) == 0
    change(warehouse, fives)
    with pytest.raises(DataError, match=r"run \w{8} of 'fives' \(a (correction|backfill), ") as no:
        take(warehouse, hours)
    assert "changed windows that 'hours' had read. Run `tidemark rebuild hours`" in str(no.value)
    for table in hours.own_tables:
        warehouse.drop_table(table)
    assert take(warehouse, hours) == 2
    assert [r["n"] for r in rows_of(warehouse, hours)] == [2, 1]
    arrive(warehouse, *arrivals)
    incremental(warehouse, fives)
    assert take(warehouse, hours) == 1
    for table in fives.own_tables:
        warehouse.drop_table(table)
    incremental(warehouse, fives)
    with pytest.raises(DataError, match=r"'fives' no longer has the run .*, or it was dropped"):
        take(warehouse, hours)


def test_a_correction_is_a_step_of_a_chain_of_changes(warehouse: Warehouse) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    changes = chain(name="changes", of=fives, rows="changes")
    late: dict[str, Any] = {
        "allowed_lateness": 20 * SECOND,
        "trigger": Trigger(late=EachArrival()),
    }
    tens = asset("tens", changes, Tumbling("10 seconds"), "n", **late)
    strict = asset("strict", changes, Tumbling("10 seconds"), "n")
    # The last event of the second arrival is too late.
    arrivals = [at(1, 9), at(20, 2), at(30)]
    arrive(warehouse, *arrivals[:2])
    incremental(warehouse, fives)
    assert take(warehouse, changes) == 2
    incremental(warehouse, tens)
    assert correct(warehouse, fives) is not None
    assert take(warehouse, changes) == 1
    rows = rows_of(warehouse, changes)
    found = [(r["arrival"], r["window_first"], r["retraction"], r["n"]) for r in rows]
    changed = [(2, 0, True, 1), (2, 0, False, 2)]
    assert found == [(0, 0, False, 1), (1, 5 * SECOND, False, 1), *changed]
    position = json.loads(Log(warehouse, changes).read_timeline()[-1].position)
    assert position["change"]["mode"] == "correction"
    incremental(warehouse, tens)
    # One of the two windows has another event.
    assert [row[3:] for row in published(warehouse, tens)] == [(2, 3)]
    # The rows of the correction are too late for an asset without allowed lateness.
    incremental(warehouse, strict)
    assert [row[3:] for row in published(warehouse, strict)] == [(2, 2)]
    assert correct(warehouse, strict) is not None
    assert [row[3:] for row in published(warehouse, strict)] == [(2, 3)]
    backfill(warehouse, fives)
    assert take(warehouse, changes) == 1
    arrive(warehouse, *arrivals)
    incremental(warehouse, fives)
    assert take(warehouse, changes) == 1
    incremental(warehouse, tens)
    assert [row[3:] for row in published(warehouse, tens)] == [(2, 2)]
    assert check_derived_parity(warehouse, changes).is_equal
    backfill(warehouse, fives, late_events="include")
    backfill(warehouse, replace(fives, function=lambda rows: rows.where("v > 0")))
    with pytest.raises(DataError, match=r"run \w{8} of 'fives' \(a backfill, .*rebuild changes"):
        take(warehouse, changes)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_chain_that_lags_takes_changes_in_the_order_of_its_asset(warehouse: Warehouse) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    changes = chain(name="changes", of=fives, rows="changes")
    # The last events of the second and of the third arrival are too late.
    arrivals = [at(1, 9), at(20, 2), at(30, 3), at(40)]
    arrive(warehouse, *arrivals[:1])
    incremental(warehouse, fives)
    assert take(warehouse, changes) == 1
    for through in (2, 3):
        arrive(warehouse, *arrivals[:through])
        incremental(warehouse, fives)
        assert correct(warehouse, fives) is not None
    # Of the next steps, each but the last one is taken alone.
    assert take(warehouse, changes, 1) == 4
    timeline = Log(warehouse, changes).read_timeline()
    steps = [Step.of_position(a.position) for a in timeline]
    assert [(s.taken_arrival, s.change is not None) for s in steps] == [
        *((0, False), (1, False), (1, True), (2, False), (2, True))
    ]
    rows = rows_of(warehouse, changes)
    assert net_rows(rows) == sorted(published(warehouse, fives), key=str)
    assert check_derived_parity(warehouse, changes).is_equal


@pytest.mark.parametrize("lags", mostly_nightly([True, False]))
def test_a_correction_after_the_end_is_refused_also_if_the_chain_lags(
    warehouse: Warehouse, lags: bool
) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    changes = chain(name="changes", of=fives, rows="changes")
    arrive(warehouse, at(1, 9), at(20, 2))
    incremental(warehouse, fives)
    assert take(warehouse, changes) == 2
    given = [ScenarioArrival(rows, 0) for rows in (at(1, 9), at(20, 2))]
    given.append(ScenarioArrival((), 1, ends=True))
    list(ingest(warehouse, MemoryConnector(ORDERS, given), batch=None))
    incremental(warehouse, fives)
    taken = 0 if lags else take(warehouse, changes)
    assert correct(warehouse, fives) is not None
    timeline = Log(warehouse, changes).read_timeline()
    with pytest.raises(
        DataError, match=r"a correction, .* had read, and 'changes' has ended\. Run `tidemark"
    ):
        derived(warehouse, changes).list_pending(timeline)
    assert len(timeline) == 2 + taken


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_correction_that_merges_sessions_is_a_step(warehouse: Warehouse) -> None:
    sessions = asset("sessions", ORDERS, Session("3 seconds"), "v")
    changes = chain(name="changes", of=sessions, rows="changes")
    # The event of the fourth arrival joins two sessions, but is too late.
    arrivals = [at(1), at(5), at(20), at(3), at(40)]
    arrive(warehouse, *arrivals[:4])
    incremental(warehouse, sessions)
    assert take(warehouse, changes, 1) == 4
    assert correct(warehouse, sessions) is not None
    assert take(warehouse, changes) == 1
    rows = rows_of(warehouse, changes)
    found = [(r["window_first"], r["retraction"], r["n"]) for r in rows if r["arrival"] == 4]
    assert found == [(SECOND, True, 1), (5 * SECOND, True, 1), (SECOND, False, 3)]
    for change in (None, backfill):
        arrive(warehouse, *arrivals)
        incremental(warehouse, sessions)
        if change is not None:
            change(warehouse, sessions)
        assert take(warehouse, changes) == 1
        rows = rows_of(warehouse, changes)
        assert net_rows(rows) == sorted(published(warehouse, sessions), key=str)
        assert check_derived_parity(warehouse, changes).is_equal


@pytest.mark.nightly
@pytest.mark.slow
def test_a_chain_refuses_windows_that_left_the_quarantine(warehouse: Warehouse) -> None:
    fives = asset(
        "fives", ORDERS, Tumbling("5 seconds"), "v", expectations=(between("n", 2, None),)
    )
    hours = chain(name="hours", of=fives)
    arrive(warehouse, at(1, 2, 6), at(20))
    incremental(warehouse, fives)
    assert take(warehouse, hours) == 2
    assert [r["n"] for r in rows_of(warehouse, hours)] == [2]
    release_windows(warehouse, fives, Choice())
    with pytest.raises(DataError, match="had read windows of 'fives', some of them left"):
        take(warehouse, hours)


def test_each_stage_of_a_chain_adds_one_small_ingest_and_one_small_run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    first = chain(name="first", of=fives)
    tens = asset("tens", first, Tumbling("10 seconds"), "v")
    second = chain(name="second", of=tens)
    twenties = asset("twenties", second, Tumbling("20 seconds"), "v")
    queries, execute = 0, SparkConnectClient._execute_and_fetch_as_iterator

    def count(*args: Any, **given: Any) -> Any:  # noqa: ANN401
        nonlocal queries
        queries += 1
        return execute(*args, **given)

    monkeypatch.setattr(SparkConnectClient, "_execute_and_fetch_as_iterator", count)
    stages: list[WindowedTransform | DerivedSource] = [fives, first, tens, second, twenties]
    for number in range(3):
        arrive(warehouse, *[at(second) for second in (1, 26, 51)[: number + 1]])
        for stage in stages:
            queries = 0
            if isinstance(stage, DerivedSource):
                assert take(warehouse, stage) == 1
            else:
                before = [version(warehouse, table) for table in stage.own_tables]
                incremental(warehouse, stage)
                after = [version(warehouse, table) for table in stage.own_tables]
                # A commit of the state, and one of the windows; the first run creates the tables.
                changed = [new - old for old, new in zip(before, after, strict=True)]
                assert sum(changed) == 2 or number == 0
            assert queries == 1
    assert [row["n"] for row in warehouse.load_rows(twenties.published_table).to_pylist()] == [1, 1]


def version(warehouse: Warehouse, table: str) -> int:
    return warehouse.newest_version(table) if warehouse.has_table(table) else -1


def test_a_chain_of_a_roll_up(warehouse: Warehouse) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v", allowed_lateness=3 * SECOND)
    minutes = rollup(of=fives, name="minutes", window=Tumbling("1 minute"))
    of_minutes = chain(name="of_minutes", of=minutes)
    changes = chain(name="changes", of=minutes, rows="changes")
    arrive(warehouse, at(1, 59), at(64, 58), at(70, 57))
    for each in list[Definition]([fives, minutes]):
        incremental(warehouse, each)
    assert take(warehouse, of_minutes) == 3
    (row,) = rows_of(warehouse, of_minutes)
    assert (row["arrival"], row["window_first"], row["n"]) == (2, 0, 4)
    assert row["window_last"] == 60 * SECOND - 1
    assert take(warehouse, changes, 1) == 3
    assert [(r["arrival"], r["retraction"], r["n"]) for r in rows_of(warehouse, changes)] == [
        (1, False, 3),
        (2, True, 3),
        (2, False, 4),
    ]
    for source in (of_minutes, changes):
        assert check_derived_parity(warehouse, source).is_equal


def test_a_declared_type_that_is_not_that_of_the_asset(warehouse: Warehouse) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    hours = chain(name="hours", of=fives, types={"n": "INT"})
    arrive(warehouse, at(1), at(20))
    incremental(warehouse, fives)
    with pytest.raises(DefinitionError, match=r"Specify types=\{'n': 'bigint'\}"):
        take(warehouse, hours)
    # The refusal created nothing that would refuse the corrected definition.
    assert not any(warehouse.has_table(table) for table in hours.own_tables)
    assert take(warehouse, chain(name="hours", of=fives, types={"n": "BIGINT"})) == 2


def test_heartbeats_that_change_no_window_reach_a_chain(warehouse: Warehouse) -> None:
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), "v")
    hours = chain(name="hours", of=fives)
    arrive(warehouse, at(1), at(20), (), ())
    incremental(warehouse, fives, last_arrival=1)
    assert take(warehouse, hours) == 4
