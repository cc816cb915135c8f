"""Report the marts that `tidemark marts` built to Dagster.

A build in Dagster reports itself. A build on the command line leaves a file (`Marts.build`), which
the sensor `marts_reports` reads. It reports the built marts as materialized, and their tests as
their checks. Otherwise such a mart would look as if it had never been built.
"""

from collections.abc import Iterator

import dagster as dg

from tidemark_assets.sensors.reporting import Report, Reporter, Tick
from tidemark_streaming.dbt.marts import Build, Marts


def builds_reporter(project: Marts, assets: dg.AssetsDefinition) -> Reporter:
    """Return the part that reports builds of these assets on the command line."""

    def report(tick: Tick) -> Report:
        through: dict[str, int] = tick.memory or {}
        new = project.builds(through.get(project.database, 0))
        events = [event for build in new for event in _events(build, assets)]
        if new:
            through[project.database] = new[-1].at
        summary = f"Reported {len(events)} marts and tests." if events else "No new builds."
        return Report(summary, events, through)

    return Reporter("builds", report)


def _events(
    build: Build, assets: dg.AssetsDefinition
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield the events of one build, without models and tests that no longer exist."""
    keys, tests = {k.path[-1]: k for k in assets.keys}, {k.name: k for k in assets.check_keys}
    for outcome in build.outcomes:
        if outcome.kind == "model" and outcome.good and outcome.name in keys:
            took = dg.MetadataValue.float(outcome.seconds)
            metadata = {"made by": "the command line", "Execution Duration": took}
            yield dg.AssetMaterialization(keys[outcome.name], metadata=metadata)
        elif outcome.kind == "test" and outcome.status != "skipped" and outcome.name in tests:
            check, warned = tests[outcome.name], outcome.status == "warn"
            yield dg.AssetCheckEvaluation(
                asset_key=check.asset_key,
                check_name=check.name,
                passed=outcome.status == "pass",
                severity=dg.AssetCheckSeverity.WARN if warned else dg.AssetCheckSeverity.ERROR,
                metadata={"made by": "the command line", "dbt says": outcome.message or "nothing"},
            )
