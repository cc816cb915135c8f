"""Test the frame of all sensors."""

import dagster as dg

from helpers.dagster.ticks import Ticks
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN
from tidemark_assets.sensors.frame import create_sensor


def test_a_tick_that_cannot_read_shows_the_error(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        raise DataError(f"{context.cursor} is unreadable.")

    sensor = create_sensor(PLAIN, "some", "Launches some.", evaluate, job="some_job")
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    ticks = Ticks(sensor, instance, settings, cursor="table")
    assert ticks.skipped() == "table is unreadable."
    assert ticks.cursor == "table"
