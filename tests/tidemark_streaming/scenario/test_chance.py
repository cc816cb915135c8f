"""Random scenarios on a real engine: batch and stream equal the oracle for any arrivals and any
history of the asset. By default the same selected examples each time; `TIDEMARK_TEST_EXAMPLES=50`
takes that many new ones."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.model.histories import lived_through
from helpers.model.oracle import Row, micros, moment, windows_of
from helpers.model.oracle import simulate as oracle
from helpers.model.random_scenarios import scenarios
from helpers.model.telling import LONG, Example, drawn, telling
from helpers.suite.nightly import mostly_nightly
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario
from tidemark_streaming.scenario.run.compare import compare_results
from tidemark_streaming.scenario.run.simulate import simulate_scenario

FEW = 7
BY_ORDER = ("firstv", "lastv")
"""Aggregates whose result depends on the order of events with equal times in one arrival."""

Found = tuple[str, Row, Row]
"""How the scenario was run, the scenario, and its result."""


def jobs(warehouse: Warehouse) -> dict[str, Callable[[], list[Found]]]:
    examples = drawn(LONG) if LONG else telling(FEW)
    return {str(number): partial(found, warehouse, e) for number, e in enumerate(examples)}


def found(warehouse: Warehouse, example: Example) -> list[Found]:
    told, history, seed = example
    lived = told if ordered(told) else shuffled(told, seed)
    cut = seed % 4 + 1
    ways = (None, cut) if LONG else (None,)
    batch, *streams = simulate_scenario(warehouse, scenario(told), *ways)
    after = batch | lived_through(warehouse, scenario(lived), history)
    return [
        ("as batch", told, batch),
        *((f"in runs of {cut}", told, stream) for stream in streams),
        (f"after {history}", lived, after),
    ]


# Each example runs as a batch, and again after every kind of event in an asset's history.
@pytest.mark.slow
@pytest.mark.parametrize("number", mostly_nightly(range(LONG or FEW), LONG or 1))
def test_tables_equal_the_oracle_for_random_scenarios_and_histories(
    outcome_of: Callable[[str], list[Found]], number: int
) -> None:
    for how, told, result in outcome_of(str(number)):
        said = f"{how}:\n{yaml.safe_dump(told, sort_keys=False)}"
        assert compare_results(oracle(told), result) == [], f"not as the oracle has it {said}"
        assert faults(told, result) == [], said


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(told=scenarios())
def test_the_oracles_results_are_consistent(told: Row) -> None:
    assert faults(told, oracle(told)) == []


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(told=scenarios(), seed=st.integers(0, 99))
def test_the_order_within_an_arrival_does_not_matter(told: Row, seed: int) -> None:
    if not ordered(told):
        assert compare_results(oracle(unordered(told)), oracle(shuffled(told, seed))) == []


def scenario(told: Row) -> Scenario:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(yaml.safe_dump(told))
        return load_scenario(path)


def faults(told: Row, found: Row) -> list[str]:
    """Return the inconsistencies of a result, independent of the oracle."""
    wrong: list[str] = []
    keys = told["transform"]["keys"]

    def window(row: Row) -> tuple[Any, ...]:
        return (row["window_start"], row["window_end"], *(row[k] for k in keys))

    published = {window(row): row["n"] for row in found["windows"]}
    if len(published) != len(found["windows"]):
        wrong.append("a window is published twice")
    panes = [(window(p), p["n"], p["retraction"]) for p in found["panes"]]
    fresh = sum(n for _, n, retraction in panes if not retraction)
    total = sum(published.values())
    match told["transform"]["accumulation"]:
        case "discarding" if fresh != total:
            wrong.append(f"the panes have {fresh} events, the windows {total}")
        case "retracting" if fresh - sum(n for _, n, gone in panes if gone) != total:
            wrong.append("the retractions do not cancel what they take back")
        case "accumulating" if any((w, n, False) not in panes for w, n in published.items()):
            wrong.append("a window is published with what no pane has")
        case _:
            pass
    if not told["open"] and "deduplicate" not in told["transform"]:
        meant = sum(
            len(windows_of(told["transform"]["window"], micros(moment(row["ts"]))))
            for item in told["arrivals"]
            for row in item.get("rows", ())
            if row["ts"] is not None
        )
        late = sum(
            row["window_start"] is not None or row["ts"] is not None for row in found["late"]
        )
        if total + late != meant:
            wrong.append(f"of {meant} events in their windows {total} count and {late} are late")
    return wrong


def ordered(told: Row) -> bool:
    """Return whether the order within an arrival decides which events count or when windows
    fire."""
    if "deduplicate" in told["transform"]:
        return True
    return any("count" in firing for firing in told["transform"].get("trigger", {}).values())


def unordered(told: Row) -> Row:
    """Return the scenario without the aggregates that depend on the order within an arrival."""
    aggregates = told["transform"]["aggregates"]
    left = {name: what for name, what in aggregates.items() if name not in BY_ORDER}
    return told | {"transform": told["transform"] | {"aggregates": left}}


def shuffled(told: Row, seed: int) -> Row:
    """Return the same events in the same arrivals, in another order."""
    chance = Random(seed)

    def mixed(item: Row) -> Row:
        if "rows" not in item:
            return item
        return {"rows": chance.sample(item["rows"], len(item["rows"]))}

    return unordered(told) | {"arrivals": [mixed(item) for item in told["arrivals"]]}
