"""Ticks of a sensor, evaluated in the process of the tests."""

from dataclasses import dataclass

import dagster as dg

from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.sensors.frame import SensorPart, create_sensor

QUIET = {"telemetry": {"enabled": False}}
"""The configuration of Dagster instances in tests: no telemetry."""


@dataclass
class Ticks:
    """Ticks of a sensor, each with the cursor of the previous one."""

    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    settings: Settings
    cursor: str | None = None

    def tick(self) -> dg.SensorResult:
        keys = self.sensor.required_resource_keys
        given = dict.fromkeys(keys, TidemarkResource(self.settings))
        with dg.build_sensor_context(self.instance, self.cursor, resources=given) as context:
            # A direct call passes resources as arguments, which the daemon does not do.
            result = self.sensor._raw_fn(context)
        assert isinstance(result, dg.SensorResult), result
        # The daemon also reports events first and then stores the cursor.
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = result.cursor
        return result

    def requested(self) -> dg.RunRequest:
        """Return the only run that a tick launches."""
        [request] = self.tick().run_requests or []
        return request

    def launched(self) -> list[str]:
        """Return the assets of the run that a tick launches."""
        [op] = self.requested().run_config["ops"].values()
        config = op["config"]
        if "operation" in config:
            [config] = config["operation"].values()
        return config["assets"]

    def skipped(self) -> str:
        """Return the reason why a tick launches nothing, without the name of the only part."""
        result = self.tick()
        assert isinstance(result.skip_reason, dg.SkipReason), result
        message = result.skip_reason.skip_message or ""
        if "\n" not in message:
            message = message.partition(": ")[2]
        return message


def of(definitions: dg.Definitions, instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    """Return the ticks of the only sensor in the definitions, which has one part."""
    [sensor] = definitions.sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    return Ticks(sensor, instance, settings)


def of_part(
    part: SensorPart, instance: dg.DagsterInstance, settings: Settings, names: Names = PLAIN
) -> Ticks:
    """Return the ticks of a sensor that has one part."""
    sensor = create_sensor(names, "some_reports", "Reports some.", [part])
    return Ticks(sensor, instance, settings)
