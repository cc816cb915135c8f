"""A sensor's ticks, evaluated in the tests' own process."""

from dataclasses import dataclass

import dagster as dg

from tidemark.base.settings import Settings
from tidemark_assets.resources import TidemarkResource

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
            self.instance, self.cursor, resources={"tidemark": TidemarkResource(self.settings)}
        )
        result = self.sensor(context)
        if isinstance(result, dg.SensorResult):
            self.cursor = result.cursor
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
