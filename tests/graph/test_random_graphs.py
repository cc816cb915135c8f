"""Random graphs under random operations: each node is up to date, behind, or reported as stale.

After each operation, the tables of each node equal its definition over what its bases recorded,
which is computed in plain Python, or `tidemark status` reports the node with a cause. The records
of a sink add up to the published table. There is no third outcome. A failing case is reduced to a
short one and printed; saved as a file in `cases`, it is replayed by each run of this module.

The seeds follow from the commit, so each commit tests other cases. `TIDEMARK_TEST_EXAMPLES=2000`
takes that many, from `TIDEMARK_TEST_SEED=5000` on.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import tidemark
import tidemark_streaming
from conftest import SHORT_LIVED
from helpers.graph.case import Part, from_file, to_text, without_node
from helpers.graph.draw import DISABLED, FAIL_POINTS, KIND_DRAWS, random_case
from helpers.graph.faults import FAULTS, planted
from helpers.graph.live import Failure, live, live_without_engine
from helpers.graph.seeds import seeds
from helpers.graph.shrink import Attempt, shrink
from helpers.suite.interruption import HOMES
from helpers.suite.nightly import mostly_nightly
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
WITHOUT_WINDOWS = seeds(3)
WITH_WINDOWS = seeds(3)
WITH_DEATHS = seeds(3)
SHRINKING_SECONDS = 300
MOST_CASES = 20
"""The number of cases within which a planted fault must be found."""


_UNION: Part = {
    "sources": {"a": {"bound": 0}, "b": {"bound": 0}},
    "nodes": {"u": {"kind": "union", "of": ["a", "b"]}},
}


def hold(case: Part, attempt: Attempt) -> None:
    """Live through a case. If the invariant is broken, fail with the shortest case that breaks it.

    The message is the content of a file for the folder `cases`.
    """
    try:
        attempt(case)
    except Failure as failure:
        shortest, last = shrink(case, failure, attempt, SHRINKING_SECONDS)
        pytest.fail(f"{last}\n\n# {case['name']}\n{to_text(shortest)}", pytrace=False)


@pytest.mark.parametrize("seed", WITHOUT_WINDOWS)
def test_derived_sources_hold_under_operations(seed: int) -> None:
    case = random_case(seed, with_windows=False)
    hold(case, live_without_engine)


# Each operation may take a few runs.
@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly(WITH_WINDOWS))
def test_graphs_hold_under_operations(engine: Settings, seed: int) -> None:
    hold(random_case(seed), lambda each: live(engine, each))


@pytest.fixture(scope="module")
def mortal_engine() -> Iterator[Settings]:
    """Yield the settings of an engine that no other test uses."""
    home = Path(tempfile.mkdtemp(dir=os.environ.get(HOMES)))
    settings = Settings(
        home=home,
        remote=None,
        engine_port=free_port(),
        engine_memory="1g",
        engine_java_options=SHORT_LIVED,
        engine_archive=False,
        engine_ui_port=None,
        engine_event_log=None,
    )
    yield settings
    spark_engine.stop_engine(settings)


# Each operation may take a few runs, and each start of an engine ten seconds.
@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly(WITH_DEATHS, usual=0))
def test_graphs_hold_if_the_engine_dies(mortal_engine: Settings, seed: int) -> None:
    hold(random_case(seed, engine_dies=True), lambda each: live(mortal_engine, each))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_earlier_failures_hold(path: Path) -> None:
    hold(from_file(path), live_without_engine)


# A planted fault of windows takes a few minutes.
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.with_windows])
def test_a_fault_of_sources_is_found(name: str) -> None:
    assert finds(name, live_without_engine)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [name for name, fault in FAULTS.items() if fault.with_windows and not fault.engine_dies],
)
def test_a_fault_of_windows_is_found(engine: Settings, name: str) -> None:
    assert finds(name, lambda case: live(engine, case))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.engine_dies])
def test_a_fault_after_the_death_of_the_engine_is_found(mortal_engine: Settings, name: str) -> None:
    assert finds(name, lambda case: live(mortal_engine, case))


def finds(name: str, attempt: Attempt) -> bool:
    """Return whether one of a few cases fails under a planted fault. The cases hold without it."""
    fault = FAULTS[name]
    concerned = 0
    for seed in count():
        case = random_case(
            seed, fault.kinds, with_windows=fault.with_windows, engine_dies=fault.engine_dies
        )
        if not fault.concerns(case):
            continue
        concerned += 1
        if concerned > MOST_CASES:
            return False
        try:
            with planted(fault):
                attempt(case)
        except Failure:
            attempt(case)
            return True
    raise AssertionError


def test_a_case_follows_from_its_seed() -> None:
    texts = [to_text(random_case(seed)) for seed in range(50)]
    assert texts == [to_text(random_case(seed)) for seed in range(50)]
    assert len(set(texts)) == len(texts)


def test_disabled_kinds_exist_and_are_not_drawn() -> None:
    assert set(DISABLED) <= set(KIND_DRAWS)
    drawn = {
        operation["do"] for seed in range(200) for operation in random_case(seed)["operations"]
    }
    assert {"arrive", "beat", "backfill"} <= drawn


def test_processes_are_killed_at_each_fail_point() -> None:
    folders = [Path(package.__path__[0]) for package in (tidemark, tidemark_streaming)]
    code = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    points = {point for text in code for point in re.findall(r'pass_fail_point\("(\w+)"\)', text)}
    assert "timeline" in points
    assert points <= {*FAIL_POINTS}


def test_a_failing_case_is_reduced_to_the_operations_that_matter() -> None:
    arrive: Part = {"do": "arrive", "source": "a", "clock": 1, "rows": [{"id": "1"}, {"id": "2"}]}
    others = [{"do": "beat", "source": "b"}, {"do": "drop", "node": "u"}, {"do": "backup"}]
    operations = [{**operation, "then": ["u"]} for operation in (arrive, *others, *others)]
    case: Part = {**_UNION, "operations": operations}

    def attempt(each: Part) -> None:
        names = [operation["do"] for operation in each["operations"]]
        if "arrive" in names and "backup" in names:
            raise Failure("silent", "u", len(names) - 1, "rows are missing")

    with pytest.raises(Failure) as failed:
        attempt(case)
    shortest, _ = shrink(case, failed.value, attempt, 10)
    one_row = {**arrive, "rows": [{"id": "2"}], "then": []}
    assert shortest["operations"] == [one_row, {"do": "backup", "then": []}]
    assert (list(shortest["sources"]), shortest["nodes"]) == (["a"], {})


def test_a_base_stays_in_a_reduced_case() -> None:
    case: Part = {**_UNION, "operations": []}
    assert without_node(case, "a") is None
    reduced = without_node(case, "u")
    assert reduced is not None
    assert not reduced["nodes"]
