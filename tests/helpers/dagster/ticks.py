"""Ticks of a sensor, evaluated in the process of the tests."""

import inspect
from dataclasses import dataclass

import dagster as dg

from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.sensors.frame import Reporter, reporting_sensor

QUIET = {"telemetry": {"enabled": False}}
"""The configuration of Dagster instances in tests: no telemetry."""


@dataclass
class Ticks:
    """Ticks of a sensor, each with the cursor of the previous one."""

    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    settings: Settings
    cursor: str | None = None
    part: str = ""

    def tick(self) -> dg.SensorResult | dg.RunRequest | dg.SkipReason:
        keys = self.sensor.required_resource_keys
        given = dict.fromkeys(keys, TidemarkResource(self.settings))
        with dg.build_sensor_context(self.instance, self.cursor, resources=given) as context:
            # A direct call passes resources as arguments, which the daemon does not do.
            result = inspect.unwrap(self.sensor)(context)
        if isinstance(result, dg.SensorResult):
            # The daemon also reports events first and then stores the cursor.
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)
            self.cursor = result.cursor
        elif context.cursor is not None:
            self.cursor = context.cursor
        assert isinstance(result, dg.SensorResult | dg.RunRequest | dg.SkipReason)
        return result

    def launched(self) -> list[str]:
        """Return the assets of the run that a tick launches."""
        result = self.tick()
        assert isinstance(result, dg.SensorResult), result
        [request] = result.run_requests or []
        [op] = request.run_config["ops"].values()
        return op["config"]["assets"]

    def skipped(self) -> str:
        """Return the reason why a tick launches nothing."""
        result = self.tick()
        reason = result.skip_reason if isinstance(result, dg.SensorResult) else result
        assert isinstance(reason, dg.SkipReason), result
        return (reason.skip_message or "").removeprefix(self.part)


def of(definitions: dg.Definitions, instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    """Return the ticks of the only sensor in the definitions."""
    [sensor] = definitions.sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    return Ticks(sensor, instance, settings)


def of_part(
    reporter: Reporter, instance: dg.DagsterInstance, settings: Settings, names: Names = PLAIN
) -> Ticks:
    """Return the ticks of a sensor that has one part."""
    sensor = reporting_sensor(names, "some_reports", "Reports some.", [reporter])
    return Ticks(sensor, instance, settings, part=f"{reporter.name}: ")
