"""Test backfills of a range of partitions whose engine is killed while their step runs.

The runs have the tags, the steps and the executor of a backfill that is launched in Dagster's web
interface. They run in this process.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from conftest import SHORT_LIVED
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.engine.server import managed_of
from tidemark.verify.parity import check_parity
from tidemark_assets.base import steps
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.definitions import build_definitions
from tidemark_assets.flights.transforms import departures_hourly

DAYS = ("2013-01-01", "2013-01-03")
RANGE_TAGS = {
    "dagster/asset_partition_range_start": DAYS[0],
    "dagster/asset_partition_range_end": DAYS[1],
    "dagster/backfill": "abcdefgh",
}
DEADLINE = 300.0
"""The timeout in seconds of the wait for a table, on a busy machine with two cores."""

# Starts its own engine, and kills it.
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0, 0))
    # Sessions of earlier tests would be found.
    monkeypatch.setattr(ConnectSession, "_default_session", None)
    monkeypatch.setattr(ConnectSession, "_active_session", threading.local())
    settings = Settings(
        home=tmp_path / "home",
        landing=str(tmp_path / "landing"),
        engine_port=free_port(),
        engine_memory="1g",
        engine_java_options=SHORT_LIVED,
        engine_archive=False,
    )
    yield settings
    spark_engine.stop_engine(settings)


def kill_once_written(settings: Settings, table: str) -> threading.Thread:
    """Kill the engine as soon as the first commit to a table begins, in a thread."""
    engine = managed_of(settings).find_running()
    assert engine is not None
    folder = Path(settings.warehouse, settings.database, table, "_delta_log")

    def kill() -> None:
        deadline = time.monotonic() + DEADLINE
        while not folder.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(engine.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    return killer


@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")
@pytest.mark.parametrize(
    "table",
    [
        pytest.param("departures_hourly_state", id="before the windows are published"),
        pytest.param("runs", id="before the run is reported"),
    ],
)
def test_a_backfill_whose_engine_is_killed_is_retried_and_equal(
    settings: Settings, table: str
) -> None:
    resource = TidemarkResource(settings)
    definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": resource})
    job = definitions.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral(str(settings.home)) as instance:
        ingested = job.execute_in_process(
            asset_selection=[dg.AssetKey("flights_log")],
            instance=instance,
            run_config={"ops": {"ingest_flights": {"config": {"play_days": 4}}}},
        )
        assert ingested.success
        killed = managed_of(settings).find_running()
        killer = kill_once_written(settings, table)
        result = job.execute_in_process(
            asset_selection=[dg.AssetKey("departures_hourly")],
            instance=instance,
            raise_on_error=False,
            tags=RANGE_TAGS,
        )
        killer.join()
        assert result.success
        (retry,) = result.filter_events(lambda event: event.is_step_up_for_retry)
        error = retry.step_retry_data.error
        assert error is not None
        shown = error.to_string()
        assert "The engine has exited, or lost this session." in shown
        assert "_InactiveRpcError" not in shown
        assert managed_of(settings).find_running() not in (None, killed)
        partitions = instance.get_materialized_partitions(dg.AssetKey("departures_hourly"))
        assert partitions == {"2013-01-01", "2013-01-02", "2013-01-03"}

    report = check_parity(resource.warehouse, departures_hourly)
    assert report.windows > 100
    assert report.is_equal, report.differences
