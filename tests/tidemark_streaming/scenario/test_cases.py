"""Test cases of other engines give the expected results as a batch and as a stream in any cut. Each
case is cut in one way, and in all ways with `TIDEMARK_TEST_EXAMPLES`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from helpers.model.telling import LONG
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.run.compare import compare_results, find_differences
from tidemark_streaming.scenario.run.simulate import Result, simulate_scenario

CASES = Path(__file__).parents[2] / "cases"
CUTS = (1, 2, 3, 1_000)
"""Arrivals per run; the last value covers all of them. Distributed so that the session cases are
cut."""

PATHS = [
    *sorted(CASES.glob("*.yaml")),
    *sorted((CASES / "derived").glob("*.yaml")),
    *sorted((CASES / "suites").glob("*/*.yaml")),
]
USUAL = 3
"""Each so many cases, one runs in every run of the suite; the others run at night."""
WAYS: dict[Path, tuple[int | None, ...]] = {
    path: (None, *CUTS) if LONG else (None, CUTS[-number % len(CUTS)])
    for number, path in enumerate(PATHS)
}


def is_long(path: Path) -> bool:
    """Return whether a case of a published suite has several sources, which takes longest."""
    return "suites" in path.parts and "sources:" in path.read_text().splitlines()


def jobs(warehouse: Warehouse) -> dict[str, Callable[[], list[Result]]]:
    return {
        p.stem: partial(simulate_scenario, warehouse, load_scenario(p), *ways)
        for p, ways in WAYS.items()
    }


# Each case runs as a batch and in one cut; the scenarios of the rules are fast.
@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=pytest.mark.nightly if not LONG and (number % USUAL or is_long(path)) else [],
        )
        for number, path in enumerate(WAYS)
    ],
    ids=lambda path: path.stem,
)
def test_a_case_gives_its_expected_results_in_any_cut(
    outcome_of: Callable[[str], list[Result]], path: Path
) -> None:
    case = load_scenario(path)
    assert case.expect is not None
    batch, *streams = outcome_of(path.stem)
    assert find_differences(case.expect, batch, case.slack) == []
    for cut, stream in zip(WAYS[path][1:], streams, strict=True):
        assert compare_results(batch, stream, case.slack) == [], f"in runs of {cut}"


def test_a_wrong_expectation_is_reported_with_its_column(warehouse: Warehouse) -> None:
    case = load_scenario(CASES / "negative" / "wrong-expectation.yaml")
    assert case.expect is not None
    for result in simulate_scenario(warehouse, case, None, 2):
        (found,) = find_differences(case.expect, result)
        assert list(found.columns) == ["n"]
