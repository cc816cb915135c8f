"""Random scenarios of derived sources equal the oracle, for any progress of their bases and any
commits.

Steps and watermarks need no engine. The rows are computed by the engine, over event logs in memory,
which takes a tenth of the time. A few scenarios run completely, through ingests and runs on tables.
The scenarios are the same each time; `TIDEMARK_TEST_EXAMPLES=2000` takes that many, from
`TIDEMARK_TEST_SEED=5000` on.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import yaml
from pyspark.sql import SparkSession

from helpers.model.derived_history import live_through
from helpers.model.derived_oracle import (
    Arrival,
    EventLog,
    bases_of,
    derive,
    effective_watermarks,
    order,
    simulate,
    source_logs,
)
from helpers.model.memory_logs import MemoryLogs
from helpers.model.oracle import Instant, Row
from helpers.model.random_derived import random_derived_scenario
from helpers.model.telling import LONG
from helpers.suite.nightly import NIGHTLY, mostly_nightly
from tidemark.base import thresholds
from tidemark.base.instants import INFINITY
from tidemark.engine.queries.planning import Planning
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario
from tidemark_streaming.scenario.run.compare import compare_results, find_differences, rows_by_part

CASES = sorted((Path(__file__).parents[2] / "cases" / "derived").glob("*.yaml"))
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "0"))
TOGETHER = 2
"""The number of scenarios of one test."""
LONGEST = 80
"""The most arrivals of a scenario in memory. A query of many rows takes as long as one of few."""
SEEDS = range(SEED, SEED + (LONG or 5 * TOGETHER))
FIRSTS = [
    first if LONG or first == SEED else pytest.param(first, marks=NIGHTLY)
    for first in SEEDS[::TOGETHER]
]
COMPLETE = range(SEED, SEED + min(LONG, 40)) if LONG else (10, 7, 0, 4, 8, 11)
"""The scenarios that run completely. The first two have open chains of changes, which corrections
and erasures change afterwards.
"""
_THREADS = 3


def scenario(content: Row) -> Scenario:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_scenario(path)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_oracle_gives_the_published_values(path: Path) -> None:
    expected = load_scenario(path).expect
    assert expected is not None
    # A key `on` without quotes would be a boolean.
    content = yaml.safe_load(path.read_text())
    assert find_differences(expected, simulate(content)) == []


def test_steps_and_watermarks_equal_the_oracle() -> None:
    for seed in range(SEED, SEED + (LONG or 60)):
        content = random_derived_scenario(seed, silences=True)
        found = MemoryLogs(None, scenario(content), content, Random(seed))
        for source in found.scenario.derived.values():
            found.plan(source)
        for name, log in found.oracle.items():
            watermarks = [(instant(a.before), instant(a.after)) for a in found.timelines[name]]
            assert watermarks == [(a.before, a.after) for a in log.arrivals], said(content)
            assert [a.arrived_at for a in found.timelines[name]] == [a.clock for a in log.arrivals]
            silent = [a.silent_since for a in found.timelines[name]]
            assert silent == [a.silent_since for a in log.arrivals], said(content)


def test_rows_from_events_that_are_on_time_are_on_time() -> None:
    for seed in range(SEED, SEED + (LONG or 60)):
        content = random_derived_scenario(seed, LONGEST, silences=True)
        logs = source_logs(content)
        for name, definition in content["derived"].items():
            log = logs[name] = derive(definition, keep_on_time(definition, logs), None)
            assert all(len(on_time(log, a)) == len(a.rows) for a in log.arrivals), said(content)


def keep_on_time(definition: Row, logs: Mapping[str, EventLog]) -> dict[str, EventLog]:
    """Return the bases of a derived source, with the rows that are on time for the source."""
    names, options = bases_of(definition)
    bases = [logs[name] for name in names]
    steps = order(bases)
    marks = effective_watermarks(bases, steps, options)
    found = [replace(base, arrivals=list(base.arrivals)) for base in bases]
    for step, (base, number) in enumerate(steps):
        arrival = bases[base].arrivals[number]
        mark = marks[step - 1][base] if step > 0 else -math.inf
        rows = on_time(bases[base], arrival, mark)
        found[base].arrivals[number] = replace(arrival, rows=rows)
    return dict(zip(names, found, strict=True))


def on_time(log: EventLog, arrival: Arrival, mark: Instant = -math.inf) -> list[Row]:
    """Return the rows of an arrival that are neither behind its watermark nor behind `mark`."""
    times = [log.time(row) for row in arrival.rows]
    return [
        row
        for row, time in zip(arrival.rows, times, strict=True)
        if time is not None and time >= max(arrival.before, mark)
    ]


@pytest.fixture(scope="module")
def in_memory(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session for queries of few rows."""
    with Warehouse(spark, "").use_planning(Planning.FEW):
        yield spark


@pytest.mark.parametrize("first", FIRSTS)
def test_rows_equal_the_oracle(
    in_memory: SparkSession, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any number of rows is worth a table of versions.
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    seeds = [seed for seed in SEEDS if first <= seed < first + TOGETHER]
    content = [random_derived_scenario(seed, LONGEST) for seed in seeds]
    logs = [
        MemoryLogs(in_memory, scenario(each), each, Random(seed))
        for each, seed in zip(content, seeds, strict=True)
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(MemoryLogs.compute, logs))
    for each, found in zip(content, logs, strict=True):
        steps = {name: found.steps(source) for name, source in found.scenario.derived.items()}
        expected = {**simulate(each, steps), "watermark": None}
        wanted = {part: expected[part] for part in ("watermark", "derived", "unjoined")}
        # The differences take long to find.
        if not is_equal(wanted, found.result()):
            assert compare_results(wanted, found.result()) == [], said(each)


def jobs(warehouse: Warehouse) -> dict[str, Callable[[], tuple[Row, Row, bool]]]:
    return {str(seed): partial(history, warehouse, seed) for seed in COMPLETE}


def history(warehouse: Warehouse, seed: int) -> tuple[Row, Row, bool]:
    content = random_derived_scenario(seed, changes=True)
    found, steps, equal = live_through(warehouse, scenario(content), Random(seed))
    expected = simulate(content, steps)
    return expected, {**found, "watermark": expected["watermark"]}, equal


# Each takes half a minute.
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly(COMPLETE, LONG or 1))
def test_tables_equal_the_oracle_after_any_history(
    outcome_of: Callable[[str], tuple[Row, Row, bool]], seed: int
) -> None:
    expected, found, equal = outcome_of(str(seed))
    assert compare_results(expected, found) == [], said(random_derived_scenario(seed, changes=True))
    assert equal, said(random_derived_scenario(seed, changes=True))


def is_equal(expected: Row, found: Row) -> bool:
    """Return whether two results have the same rows, in any order."""
    one, other = (
        {part: sorted(map(repr, map(sorted, map(dict.items, rows)))) for part, rows in given}
        for given in (rows_by_part(expected).items(), rows_by_part(found).items())
    )
    return one == other


def instant(watermark: int | None) -> Instant:
    return -math.inf if watermark is None else math.inf if watermark == INFINITY else watermark


def said(content: Row) -> str:
    return yaml.safe_dump(content, sort_keys=False)
