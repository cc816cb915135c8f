"""Scenarios on a real engine: the results equal their rules and the oracle. Each runs as a batch.
Those with a trigger or a session, which span runs, also run as a stream with one arrival per run;
with `TIDEMARK_TEST_EXAMPLES` all do. Only the streams of `FAST` are part of the fast tests."""

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
from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.run.compare import compare_results, find_differences
from tidemark_streaming.scenario.run.outcome import read_outcome
from tidemark_streaming.scenario.run.simulate import Result, simulate_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
STREAM = "-as-a-stream"
FAST = ("early-every-at-the-edge", "late-every", "session-grows-after-it-fired")


def jobs(warehouse: Warehouse) -> dict[str, Callable[[], list[Result]]]:
    scenarios = {path.stem: load_scenario(path) for path in SCENARIOS}
    batches = {
        name: partial(simulate_scenario, warehouse, s, None) for name, s in scenarios.items()
    }
    streams = {path.stem + STREAM: scenarios[path.stem] for path in SCENARIOS if spans_runs(path)}
    return batches | {
        name: partial(simulate_scenario, warehouse, s, 1) for name, s in streams.items()
    }


def spans_runs(path: Path) -> bool:
    transform = load_scenario(path).transform
    return bool(LONG) or isinstance(transform.window, Session) or transform.trigger != Trigger()


def check(path: Path, results: list[Result]) -> None:
    scenario, want = load_scenario(path), oracle(yaml.safe_load(path.read_text()))
    assert scenario.expect is not None
    for result in results:
        assert find_differences(scenario.expect, result, scenario.slack) == []
        assert compare_results(want, result, scenario.slack) == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_gives_its_expected_results(
    outcome_of: Callable[[str], list[Result]], path: Path
) -> None:
    check(path, outcome_of(path.stem))


# One run per arrival.
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem + STREAM, marks=[] if path.stem in FAST else [pytest.mark.slow]
        )
        for path in filter(spans_runs, SCENARIOS)
    ],
)
def test_a_scenario_gives_its_expected_results_as_a_stream(
    outcome_of: Callable[[str], list[Result]], path: Path
) -> None:
    check(path, outcome_of(path.stem + STREAM))


def test_a_simulation_leaves_no_tables(warehouse: Warehouse) -> None:
    simulate_scenario(warehouse, load_scenario(SCENARIOS[0]), None)
    assert not list(Path(warehouse.location.removeprefix("file://")).glob("_simulations/*"))


def test_tables_on_another_machine_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="This process can't read the tables"):
        read_outcome(str(tmp_path), load_scenario(SCENARIOS[0]).transform)
