"""Test the frame of all sensors: their parts do not disturb each other."""

import json
import threading
import time

import dagster as dg
import pytest

from helpers.dagster.ticks import Ticks
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick, create_sensor


@pytest.fixture
def ticks(instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    """The ticks of a sensor with a part that counts and one that fails."""
    return Ticks(
        create_sensor(PLAIN, "some_reports", "Reports some.", [COUNTS, FAILS]),
        instance,
        settings,
    )


def count(tick: Tick) -> PartResult:
    number = (tick.memory or 0) + 1
    seen = [dg.AssetObservation("some")] if number <= 2 else []
    return PartResult(f"tick {number}", seen, number)


def fail(tick: Tick) -> PartResult:
    if tick.memory is None:
        return PartResult("works", memory="as before")
    raise ERRORS[tick.memory]


ERRORS = {"as before": DataError("No table."), "broken": KeyError("column")}
COUNTS, FAILS = SensorPart("counts", count), SensorPart("fails", fail)


def test_a_part_that_cannot_read_keeps_its_memory_while_others_report(ticks: Ticks) -> None:
    assert ticks.skipped() == "counts: tick 1\nfails: works"
    for number in (2, 3):
        assert ticks.skipped() == f"counts: tick {number}\nfails: No table."
    assert json.loads(ticks.cursor or "") == {"counts": 3, "fails": "as before"}
    assert len(ticks.instance.fetch_observations(dg.AssetKey("some"), limit=9).records) == 2


def test_a_defect_of_a_part_fails_the_tick_after_the_events_of_others(ticks: Ticks) -> None:
    ticks.cursor = json.dumps({"counts": 1, "fails": "broken"})
    assert ticks.skipped() == "counts: tick 2\nfails: KeyError('column')"
    for _ in range(2):
        with pytest.raises(KeyError, match="column"):
            ticks.tick()


def test_a_part_launches_runs_while_others_report(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    def launch(_: Tick) -> PartResult:
        return PartResult("Launches a run.", requests=[dg.RunRequest("key", job_name="some_job")])

    @dg.job
    def some_job() -> None: ...

    parts = [COUNTS, SensorPart("launches", launch)]
    sensor = create_sensor(
        PLAIN, "some", "Launches some.", parts, jobs=[some_job], runs_by_default=False
    )
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    ticks = Ticks(sensor, instance, settings)
    assert ticks.requested().run_key == "key"
    assert json.loads(ticks.cursor or "") == {"counts": 1, "launches": None}
    assert len(instance.fetch_observations(dg.AssetKey("some"), limit=9).records) == 1


def test_parts_wait_for_brokers_at_once(instance: dg.DagsterInstance, settings: Settings) -> None:
    meeting = threading.Barrier(3)

    def wait(_: Tick) -> PartResult:
        meeting.wait(30)
        return PartResult("met")

    parts = [SensorPart(name, wait) for name in "abc"]
    sensor = create_sensor(PLAIN, "some_reports", "Reports some.", parts)
    assert Ticks(sensor, instance, settings).skipped() == "a: met\nb: met\nc: met"


def test_parts_share_the_resources(instance: dg.DagsterInstance, settings: Settings) -> None:
    created, meeting = list[str](), threading.Barrier(3)

    @dg.resource
    def tidemark(_: dg.InitResourceContext) -> TidemarkResource:
        created.append("tidemark")
        time.sleep(0.2)
        return TidemarkResource(settings)

    def read(tick: Tick) -> PartResult:
        meeting.wait(30)
        return PartResult(str(tick.tidemark.settings.home))

    sensor = create_sensor(
        PLAIN, "some_reports", "Reports some.", [SensorPart(name, read) for name in "abc"]
    )
    with dg.build_sensor_context(instance, resources={"tidemark": tidemark}) as context:
        sensor._raw_fn(context)
    assert created == ["tidemark"]
