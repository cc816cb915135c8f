"""A sensor's ticks, evaluated in the tests' own process."""

import inspect
from dataclasses import dataclass

import dagster as dg

from tidemark.base.settings import Settings
from tidemark_assets.base.resources import TidemarkResource

QUIET = {"telemetry": {"enabled": False}}
"""What an instance of Dagster in tests is told: call nobody."""


@dataclass
class Ticks:
    """Each tick begins with the cursor that the one before left."""

    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    settings: Settings
    cursor: str | None = None

    def tick(self) -> dg.SensorResult | dg.RunRequest | dg.SkipReason:
        context = dg.build_sensor_context(
            self.instance,
            self.cursor,
            resources=dict.fromkeys(
                self.sensor.required_resource_keys, TidemarkResource(self.settings)
            ),
        )
        # Called itself, a sensor is given its resources as arguments, which the daemon does not do.
        result = inspect.unwrap(self.sensor)(context)
        if isinstance(result, dg.SensorResult):
            # As the daemon does it: first what is to be told, then the cursor.
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)
            self.cursor = result.cursor
        elif context.cursor is not None:
            self.cursor = context.cursor
        assert isinstance(result, dg.SensorResult | dg.RunRequest | dg.SkipReason)
        return result

    def launched(self) -> list[str]:
        """The assets for which a tick launches a run."""
        result = self.tick()
        assert isinstance(result, dg.SensorResult), result
        [request] = result.run_requests or []
        [op] = request.run_config["ops"].values()
        return op["config"]["assets"]

    def skipped(self) -> str:
        """Why a tick launches nothing."""
        result = self.tick()
        reason = result.skip_reason if isinstance(result, dg.SensorResult) else result
        assert isinstance(reason, dg.SkipReason), result
        return reason.skip_message or ""


def of(definitions: dg.Definitions, instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    """The ticks of the only sensor of some definitions."""
    [sensor] = definitions.sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    return Ticks(sensor, instance, settings)
