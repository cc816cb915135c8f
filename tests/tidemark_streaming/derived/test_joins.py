"""The event log of a join or a union is its definition over whole logs, for any cut of arrivals."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from helpers.model.join_oracle import BaseArrival, derived_watermarks, join_by_definition
from tidemark.base.errors import DataError
from tidemark.base.instants import INFINITY
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, Join, join
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import derived_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

REGISTERED = False
SECOND = 1_000_000
LEFT, RIGHT = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "id": "STRING"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
RENAME = {"payments.t": "paid_at", "payments.id": "payment"}


def derived(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


def random_arrivals(chance: random.Random, name: str) -> list[ScenarioArrival]:
    """Return random arrivals of a base, which ends with the last one."""
    found, clock, event = list[ScenarioArrival](), 0, 0
    for _ in range(chance.randint(0, 6)):
        clock += chance.randint(0, 3)
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
        base = source.bases[side]
        list(ingest(warehouse, MemoryConnector(base, arrivals[side][: given[side]]), batch=None))
        if chance.random() < 0.5:
            list(ingest(warehouse, derived(warehouse, source), batch=chance.choice([1, 2, None])))
        if given == [len(each) for each in arrivals]:
            list(ingest(warehouse, derived(warehouse, source), batch=None))
            return


def base_arrivals(
    warehouse: Warehouse, base: Source, given: Sequence[ScenarioArrival]
) -> list[BaseArrival]:
    timeline = Log(warehouse, base).timeline()
    return [
        BaseArrival(
            [dict(zip(("t", "k", "id"), row, strict=True)) for row in one.rows], a.before, a.after
        )
        for a, one in zip(timeline, given, strict=True)
    ]


def steps_of(timeline: Sequence[Arrival], source: DerivedSource) -> list[tuple[int, int]]:
    names = [base.name for base in source.bases]
    found = [Step.of_position(a.position) for a in timeline]
    return [(names.index(step.base), step.arrival) for step in found]


def tumbling(size: int) -> Callable[[int], tuple[int, int]]:
    return lambda time: (time // size * size, time // size * size + size - 1)


REACHES: list[tuple[Any, Callable[[int], tuple[int, int]]]] = [
    (Between("-2 seconds", "3 seconds"), lambda t: (t - 2 * SECOND, t + 3 * SECOND)),
    (Between("1 second", "2 seconds"), lambda t: (t + SECOND, t + 2 * SECOND)),
    (Between("-3 seconds", "-1 second"), lambda t: (t - 3 * SECOND, t - SECOND)),
    (Tumbling("4 seconds"), tumbling(4 * SECOND)),
]


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))]
"""More than two take more than a minute."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_join_is_its_definition_in_any_cut(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(seed)
    within, reach = REACHES[seed % len(REACHES)]
    how = chance.choice(["inner", "left", "full"])
    lateness = chance.choice([None, "0 seconds", "2 seconds"])
    excluded = chance.choice([None, "o1p1", "o2p1"])
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
    )
    arrivals = [random_arrivals(chance, name) for name in ("o", "p")]
    run_in_cuts(warehouse, source, arrivals, chance)

    timeline = Log(warehouse, source).timeline()
    steps = steps_of(timeline, source)
    bases = [base_arrivals(warehouse, *each) for each in zip(source.bases, arrivals, strict=True)]
    definition = source.derivation
    assert isinstance(definition, Join)
    joined, unjoined = join_by_definition(
        steps,
        bases,
        reach=reach,
        how=how,
        lateness=definition.lateness,
        where=lambda left, right: left + right != excluded,
    )
    rows = warehouse.take(source.log_table).to_pylist()
    if definition.lateness is not None:
        assert all(map(on_time, rows))
    assert sorted((r["arrival"], str(r["id"]), str(r["payment"])) for r in rows) == sorted(
        (step, str(left), str(right)) for step, left, right in joined
    )
    dead = warehouse.take(source.dead_letters_table).to_pylist()
    assert sorted((r["arrival"], r["reason"]) for r in dead) == sorted(
        (step, f"{reason} in {source.bases[side].name}") for step, side, _, reason in unjoined
    )
    after = derived_watermarks(steps, bases, definition.look_back)
    assert [a.after for a in timeline] == after
    assert timeline[-1].after == INFINITY

    assert derived_parity(warehouse, source).equal


def on_time(row: dict[str, Any]) -> bool:
    return row["watermark"] is None or row["joined_at"] >= row["watermark"]


def test_a_union_has_the_events_of_its_sources_in_any_cut(warehouse: Warehouse) -> None:
    chance = random.Random(5)
    source = union(name="all", of=[LEFT, RIGHT])
    arrivals = [random_arrivals(chance, name) for name in ("o", "p")]
    run_in_cuts(warehouse, source, arrivals, chance)
    steps = steps_of(Log(warehouse, source).timeline(), source)
    rows = warehouse.take(source.log_table).to_pylist()
    assert sorted(
        (r["arrival"], r["position"], r["origin"], r["id"], r["k"]) for r in rows
    ) == sorted(
        (n, position, source.bases[side].name, row[2], row[1])
        for n, (side, number) in enumerate(steps)
        for position, row in enumerate(arrivals[side][number].rows)
    )
    assert derived_parity(warehouse, source).equal


@pytest.mark.parametrize("condition", ["l.amount > 1", "l.id >", "CAST(l.id AS INT) > 1"])
def test_a_condition_that_can_not_be_computed(warehouse: Warehouse, condition: str) -> None:
    source = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=Between("0 seconds", "1 second"),
        rename=RENAME,
        where=condition,
    )
    for base in (LEFT, RIGHT):
        arrival = ScenarioArrival(((0, "a", "x"),), 0)
        list(ingest(warehouse, MemoryConnector(base, [arrival])))
    with pytest.raises(DataError, match="The rows of 'paid' can't be computed") as refused:
        list(ingest(warehouse, derived(warehouse, source), batch=None))
    assert f"Correct where={condition!r}" in str(refused.value)
    assert Log(warehouse, source).timeline() == []
