"""Scenarios on a real engine: the results equal their rules and the oracle. Each runs as a batch.
Those with a trigger or a session, which span runs, also run as a stream with one arrival per run;
with `TIDEMARK_TEST_EXAMPLES` all do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from helpers.model.oracle import simulate as oracle
from helpers.model.telling import LONG
from tidemark.base.errors import DataError
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Session
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.read.parse import Scenario, load
from tidemark_streaming.scenario.run.compare import compare_results, find_differences
from tidemark_streaming.scenario.run.outcome import outcome
from tidemark_streaming.scenario.run.simulate import Result, simulate

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


def jobs(warehouse: Warehouse) -> dict[str, Callable[[], list[Result]]]:
    scenarios = {path.stem: load(path) for path in SCENARIOS}
    return {name: partial(simulate, warehouse, s, *ways(s)) for name, s in scenarios.items()}


def ways(scenario: Scenario) -> tuple[int | None, ...]:
    transform = scenario.transform
    mark_healthy = isinstance(transform.window, Session) or transform.trigger != Trigger()
    return (None, 1) if LONG or mark_healthy else (None,)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_gives_its_expected_results(
    outcome_of: Callable[[str], list[Result]], path: Path
) -> None:
    scenario, want = load(path), oracle(yaml.safe_load(path.read_text()))
    assert scenario.expect is not None
    for result in outcome_of(path.stem):
        assert find_differences(scenario.expect, result, scenario.slack) == []
        assert compare_results(want, result, scenario.slack) == []


def test_a_simulation_leaves_no_tables(warehouse: Warehouse) -> None:
    simulate(warehouse, load(SCENARIOS[0]), None)
    assert not list(Path(warehouse.location.removeprefix("file://")).glob("_simulations/*"))


def test_tables_on_another_machine_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read from this process"):
        outcome(str(tmp_path), load(SCENARIOS[0]).transform)
