"""Test the pages of the docs: write their files, run their commands, check the output."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from conftest import SHORT_LIVED
from helpers.suite.pages import followed, unprinted
from tidemark.base.settings import Settings
from tidemark.engine import read_status
from tidemark.engine.ports import free_port
from tidemark_streaming.kafka import broker
from tidemark_streaming.testing.small_engine import TEST_HOME

# Each page runs about ten commands, one process each.
pytestmark = pytest.mark.slow


def environment(engine: Settings, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user with a new database."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TIDEMARK_HOME": str(engine.home),
        "TIDEMARK_ENGINE_PORT": str(engine.engine_port),
        "TIDEMARK_ENGINE_MEMORY": engine.engine_memory,
        # For the engine of a lane.
        "TIDEMARK_ENGINE_JAVA_OPTIONS": SHORT_LIVED,
        "TIDEMARK_LANDING": str(tmp_path / ".tidemark" / "landing"),
        "TIDEMARK_DATABASE": f"tutorial_{uuid4().hex[:12]}",
    }


def test_the_quick_start_prints_the_documented_output(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    # The project has its own landing folder. The engine is shared by all tests.
    del env["TIDEMARK_LANDING"]
    said = followed("docs/quick_start.md", tmp_path, env, without="Next")
    assert unprinted("docs/quick_start.md", said) == []
    late = followed("docs/late_data.md", tmp_path / "shop", env)
    assert "too late, counted by a correction" in " ".join(late.split()), late


def test_the_worked_example_of_the_concepts_prints_its_output(
    engine: Settings, tmp_path: Path
) -> None:
    said = followed("docs/concepts.md", tmp_path, environment(engine, tmp_path))
    assert unprinted("docs/concepts.md", said) == []


def test_the_migrated_definition_runs(tmp_path: Path) -> None:
    assert "tumbling 1 hour" in followed("docs/migrating.md", tmp_path, dict(os.environ))


@pytest.mark.nightly
def test_the_documented_delta_source_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/delta_source.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"arrivals +0 to 2\b", said), said


@pytest.mark.nightly
def test_the_documented_queries_read_the_windows(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    del env["TIDEMARK_LANDING"]
    said = followed("docs/query_results.md", tmp_path, env)
    assert "2026-01-01T09:00:00Z,2026-01-01T10:00:00Z,york,36.0,12.0,20.0" in said, said
    assert re.search(r"\n0 2026-01-01 09:00:00\+00:00 +(york|leeds)", said), said
    assert "4 windows in version" in said
    assert said.count("apiVersion: v3.1.0") == 1
    contract = (tmp_path / "shop/orders_hourly.odcs.yaml").read_text()
    assert contract in said
    # Polars and Spark return the same final windows.
    assert re.search(r"│ leeds ┆ 8.5 +│\n│ york +┆ 36.0 +│", said), said
    assert re.search(r"\|leeds\| +8.5\|\n\| york\| +36.0\|", said), said
    # DuckDB recounts each window from the event log.
    assert len(re.findall(r"│ +\d+\.\d │ +[123] │", said)) == 4, said


@pytest.mark.nightly
def test_the_definition_in_the_comparison_runs(tmp_path: Path) -> None:
    said = followed("docs/comparison.md", tmp_path, dict(os.environ))
    assert "early every 1 minute" in said


@pytest.mark.nightly
def test_the_documented_custom_source_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/custom_sources.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"ingest tickets .* 3 arrivals", said), said
    assert re.search(r"events +2,?500 *\n", said), said
    assert "equal: 8 rows of 'tickets_hourly'" in said, said


@pytest.fixture(scope="module")
def broker_port(engine: Settings) -> Iterator[int]:
    """Yield the port for pages that start a broker. Stop the broker after the last page."""
    settings = engine.model_copy(update={"kafka_port": free_port()})
    yield settings.kafka_port
    broker.broker_process(settings).stop()


@pytest.fixture
def beside_a_broker(engine: Settings, tmp_path: Path, broker_port: int) -> dict[str, str]:
    return environment(engine, tmp_path) | {"TIDEMARK_KAFKA_PORT": str(broker_port)}


@pytest.mark.nightly
def test_the_documented_kafka_source_and_dead_letters_run(
    beside_a_broker: dict[str, str], tmp_path: Path
) -> None:
    """The page on dead letters continues with the same records."""
    said = followed("docs/kafka_source.md", tmp_path, beside_a_broker)
    assert "equal: 3 rows of 'clicks_by_minute'" in " ".join(said.split()), said
    assert re.search(r'"offsets":\{"0":\[0,25\],"1":\[0,24\]\}', said), said
    assert re.search(r"clicks-0-24\|not JSON *\|The record is not a JSON object", said), said
    said = followed("docs/dead_letters.md", tmp_path, beside_a_broker)
    assert "The field 'at' is not a valid TIMESTAMP." in said, said
    assert said.count("1 ingested, 0 still can't be decoded") == 2, said
    assert "0 ingested, 0 still" in said, said


def test_the_documented_lane_runs(beside_a_broker: dict[str, str], tmp_path: Path) -> None:
    said = followed("docs/lanes.md", tmp_path, beside_a_broker)
    assert re.search(r"payments_airport b'airport' .*\*\*\*9012.*12\.5", said), said
    assert re.search(r"payments_elsewhere b'harbour' ", said), said
    assert re.search(r"payments_seen_dead_letters .*The record is not a JSON object", said), said


@pytest.mark.nightly
def test_the_documented_record_formats_run(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/record_formats.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"datetime\(2026, 1, 1, 0, 0.*Decimal\('12\.50'\), 'note': None", said), said
    assert "with schema 7: it ends too early." in said
    assert "There is no schema with the record's schema ID 8." in said


@pytest.mark.nightly
def test_the_documented_kafka_sink_runs(beside_a_broker: dict[str, str], tmp_path: Path) -> None:
    said = followed("docs/sinks.md", tmp_path, beside_a_broker)
    assert re.search(r"topic\s+visits_by_minute\s*\n\s*records\s+4\s*\n", said), said
    assert "2026-01-01T00:00:00Z 2026-01-01T00:01:00Z /home 13\n" in said, said
    assert "in all 25\n" in said, said


@pytest.mark.nightly
def test_the_documented_change_of_a_definition_runs(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    said = " ".join(followed("docs/changing_definitions.md", tmp_path, env).split())
    assert "the same: the tables of 'warmth' were made by the definition in the code" in said, said
    assert "aggregate mean" in said
    assert re.search(r"Of 2 rows through arrival \d: 2 changed\.", said), said
    assert "warm: 2 values mean: in every row" in said
    assert "equal: 2 rows of 'warmth'" in said
    assert said.count("the same: the tables of 'warmth'") == 2
    assert '"schema_version": 2' in said, said
    assert re.search(r"table warmth__tried arrivals 2 to 3 windows \d", said), said


@pytest.mark.nightly
def test_the_documented_lookup_join_runs(engine: Settings, tmp_path: Path) -> None:
    followed("docs/lookup_joins.md", tmp_path, environment(engine, tmp_path))


@pytest.mark.nightly
def test_the_documented_test_kit_starts_its_own_engine(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    env.pop(TEST_HOME, None)
    temp = tmp_path / "temp"
    env |= {"PYTEST_ADDOPTS": f"--basetemp={temp} -p no:cacheprovider"}
    said = followed("docs/testing_transforms.md", tmp_path, env)
    assert "2 passed" in said, said
    assert "◆york 4" in said, said
    homes = [pids.parent for pids in temp.glob("**/pids")]
    assert homes == [temp / "tidemark"]
    assert read_status(Settings(home=homes[0])).pid is None


def test_the_documented_scenario_prints_its_result(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/scenarios.md", tmp_path, environment(engine, tmp_path))
    assert "◆a 24" in said, said
