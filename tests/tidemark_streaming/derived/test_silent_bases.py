"""A silent base does not hold back a join with `idle`, and costs it nothing."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql.connect.client import SparkConnectClient

from helpers.model.join_oracle import BaseArrival, derived_watermarks, join_by_definition
from helpers.suite.nightly import NIGHTLY
from tidemark.base.instants import INFINITY
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, Join, join
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import Ingested, follow_source, ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
LEFT, RIGHT = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "id": "STRING"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
        heartbeat="1 minute",
    )
    for name in ("orders", "payments")
)
RENAME = {"payments.t": "paid_at", "payments.id": "payment"}


def derived(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


def random_arrivals(
    chance: random.Random, name: str, heartbeats: float = 0
) -> list[ScenarioArrival]:
    """Return random arrivals of a base, which ends with the last one.

    Args:
        heartbeats: the share of heartbeats.
    """
    found, clock, event, since = list[ScenarioArrival](), 0, 0, 0
    for _ in range(chance.randint(0, 6)):
        clock += chance.randint(0, 3)
        if chance.random() < heartbeats:
            found.append(ScenarioArrival((), clock, silent_since=since))
            continue
        since = clock
        rows = list[tuple[Any, ...]]()
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            event += 1
            time = chance.randint(0, 15) * SECOND if chance.random() < 0.93 else None
            key = chance.choice(["a", "a", "b", None])
            rows.append((time, key, f"{name}{event}"))
        found.append(ScenarioArrival(tuple(rows), clock))
    return [*found, ScenarioArrival((), clock + 1, ends=True)]


def run_in_cuts(
    warehouse: Warehouse,
    source: DerivedSource,
    arrivals: Sequence[Sequence[ScenarioArrival]],
    chance: random.Random,
) -> None:
    """Ingest the bases and the join in random cuts, until everything is ingested."""
    given = [0, 0]
    while True:
        side = chance.randrange(2)
        given[side] = min(given[side] + chance.choice([1, 1, 2, 10]), len(arrivals[side]))
        base = source.base_sources[side]
        list(ingest(warehouse, MemoryConnector(base, arrivals[side][: given[side]]), batch=None))
        if chance.random() < 0.5:
            list(ingest(warehouse, derived(warehouse, source), batch=chance.choice([1, 2, None])))
        if given == [len(each) for each in arrivals]:
            list(ingest(warehouse, derived(warehouse, source), batch=None))
            return


def base_arrivals(
    warehouse: Warehouse, base: Source, given: Sequence[ScenarioArrival]
) -> list[BaseArrival]:
    timeline = Log(warehouse, base).read_timeline()
    return [
        BaseArrival(
            [dict(zip(("t", "k", "id"), row, strict=True)) for row in one.rows],
            a.before,
            a.after,
            None if a.silent_since is None else a.arrived_at - a.silent_since,
        )
        for a, one in zip(timeline, given, strict=True)
    ]


def steps_of(timeline: Sequence[Arrival], source: DerivedSource) -> list[tuple[int, int]]:
    names = [base.name for base in source.base_sources]
    found = [Step.of_position(a.position) for a in timeline]
    return [(names.index(step.base), step.taken_arrival) for step in found]


def tumbling(size: int) -> Callable[[int], tuple[int, int]]:
    return lambda time: (time // size * size, time // size * size + size - 1)


REACHES: list[tuple[Any, Callable[[int], tuple[int, int]]]] = [
    (Between("-2 seconds", "3 seconds"), lambda t: (t - 2 * SECOND, t + 3 * SECOND)),
    (Between("1 second", "2 seconds"), lambda t: (t + SECOND, t + 2 * SECOND)),
    (Between("-3 seconds", "-1 second"), lambda t: (t - 3 * SECOND, t - SECOND)),
    (Tumbling("4 seconds"), tumbling(4 * SECOND)),
]


SEEDS = [
    1,
    *(pytest.param(n, marks=NIGHTLY) for n in range(3, 16, 2)),
]
"""More than one take too long."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_join_of_silent_bases_is_its_definition(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(seed)
    within, reach = REACHES[seed % len(REACHES)]
    how = chance.choice(["inner", "left", "full"])
    lateness = chance.choice([None, "0 seconds", "2 seconds"])
    excluded = chance.choice([None, "o1p1", "o2p1"])
    idle = timedelta(microseconds=2)
    source = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=within,
        how=how,
        allowed_lateness=lateness,
        rename=RENAME,
        where=None if excluded is None else f"concat(l.id, r.id) <> '{excluded}'",
        idle=idle,
    )
    arrivals = [random_arrivals(chance, name, 0.3) for name in ("o", "p")]
    run_in_cuts(warehouse, source, arrivals, chance)

    timeline = Log(warehouse, source).read_timeline()
    steps = steps_of(timeline, source)
    bases = [
        base_arrivals(warehouse, *each) for each in zip(source.base_sources, arrivals, strict=True)
    ]
    definition = source.derivation
    assert isinstance(definition, Join)
    joined, unjoined = join_by_definition(
        steps,
        bases,
        reach=reach,
        how=how,
        lateness=definition.lateness,
        where=lambda left, right: left + right != excluded,
        idle=source.idle,
    )
    rows = warehouse.load_rows(source.log_table).to_pylist()
    if definition.lateness is not None:
        assert all(map(on_time, rows))
    assert sorted((r["arrival"], str(r["id"]), str(r["payment"])) for r in rows) == sorted(
        (step, str(left), str(right)) for step, left, right in joined
    )
    dead = warehouse.load_rows(source.dead_letters_table).to_pylist()
    assert sorted((r["arrival"], r["reason"]) for r in dead) == sorted(
        (step, f"{reason} in {source.base_sources[side].name}")
        for step, side, _, reason in unjoined
    )
    after = derived_watermarks(steps, bases, definition.look_back, source.idle)
    assert [a.after for a in timeline] == after
    assert timeline[-1].after == INFINITY

    assert check_derived_parity(warehouse, source).is_equal


def on_time(row: dict[str, Any]) -> bool:
    return row["watermark"] is None or row["joined_at"] >= row["watermark"]


def test_steps_without_rows_need_no_engine(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=Between("0 seconds", "10 seconds"),
        how="left",
        rename=RENAME,
        idle="10 microseconds",
    )
    orders = [ScenarioArrival(((0, "a", "o1"), (20 * SECOND, "a", "o2")), 1)]
    payments = [ScenarioArrival(((12 * SECOND, "b", "p1"),), 2)]
    beats = [ScenarioArrival((), clock, silent_since=2) for clock in (5, 8, 12)]

    def refuse(_: SparkConnectClient) -> None:
        raise AssertionError("A step without rows has asked the engine.")

    def take(following: Iterator[Ingested], through: int) -> list[str]:
        """Take the payments and heartbeats up to a number, and return the orders without one."""
        given = [*payments, *beats][:through]
        list(ingest(warehouse, MemoryConnector(RIGHT, given), batch=None))
        # The first step has created the tables, which are registered in the background.
        warehouse.catalog.wait_until_registered()
        with monkeypatch.context() as without_engine:
            if through in (2, 3):
                without_engine.setattr(SparkConnectClient, "_stub", property(refuse))
            next(following)
        return [row["id"] for row in warehouse.load_rows(source.log_table).to_pylist()]

    list(ingest(warehouse, MemoryConnector(LEFT, orders)))
    following = follow_source(warehouse, derived(warehouse, source), 0.02)
    # The watermark of the payments is at 10 seconds, the last one at which `o1` can be paid.
    assert [take(following, n) for n in (1, 2, 3)] == [[], [], []]
    # The last heartbeat raises it to that of the orders, 18 seconds.
    assert take(following, 4) == ["o1"]
    del following
    timeline = Log(warehouse, source).read_timeline()
    assert [a.rows for a in timeline] == [0, 0, 0, 0, 1]
    assert [Step.of_position(a.position).raises for a in timeline] == [*[None] * 4, 18 * SECOND]
    assert timeline[-1].after == 8 * SECOND
    # A payment that is behind the raised watermark is late.
    late = ScenarioArrival(((13 * SECOND, "a", "p2"),), 20)
    list(ingest(warehouse, MemoryConnector(RIGHT, [*payments, *beats, late])))
    list(ingest(warehouse, derived(warehouse, source), batch=None))
    (unjoined,) = warehouse.load_rows(source.dead_letters_table).to_pylist()
    assert unjoined["reason"] == "too_late in payments"
    assert check_derived_parity(warehouse, source).is_equal
