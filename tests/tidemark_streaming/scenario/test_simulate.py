"""Scenarios on a real engine: as batch, and as a stream in any cut, they come out right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from oracle import simulate as oracle
from tidemark.warehouse import Warehouse
from tidemark_streaming.scenario.compare import differences, disagreement
from tidemark_streaming.scenario.parse import load
from tidemark_streaming.scenario.simulate import simulate

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STREAMED = {
    "early-count-leaves-a-remainder": 1,
    "early-every-at-the-edge": 2,
    "session-late-event-merges-two": 1,
    "retracting-late": 3,
    "duplicates-within-the-horizon": 1,
}
"""Scenarios that are run as streams too, in runs of so many arrivals: one for each way to fire, and
one whose duplicates are of earlier runs."""


def named(name: str) -> Path:
    return SCENARIOS / f"{name}.yaml"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_scenario_comes_out_as_its_rule_says(warehouse: Warehouse, path: Path) -> None:
    scenario = load(path)
    assert scenario.expect is not None
    result = simulate(warehouse, scenario, None)
    assert differences(scenario.expect, result) == []
    assert disagreement(oracle(yaml.safe_load(path.read_text())), result) == []


@pytest.mark.parametrize(("name", "arrivals"), STREAMED.items())
def test_a_stream_gives_what_batch_gives(warehouse: Warehouse, name: str, arrivals: int) -> None:
    scenario = load(named(name))
    assert scenario.expect is not None
    result = simulate(warehouse, scenario, arrivals)
    assert differences(scenario.expect, result) == []
    assert disagreement(oracle(yaml.safe_load(named(name).read_text())), result) == []


def test_a_wrong_expectation_is_not_met(warehouse: Warehouse) -> None:
    scenario = load(named("no-keys"))
    assert scenario.expect is not None
    assert scenario.expect.windows is not None
    wrong: dict[str, Any] = {**scenario.expect.windows[0], "n": 99}
    result = simulate(warehouse, scenario, None)
    found = differences(replace(scenario.expect, windows=[wrong]), result)
    assert "n" in found[0].columns


def test_nothing_is_left_of_a_simulation(warehouse: Warehouse) -> None:
    simulate(warehouse, load(named("no-keys")), None)
    assert not list(Path(warehouse.location.removeprefix("file://")).glob("_simulations/*"))
