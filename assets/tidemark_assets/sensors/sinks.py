"""Report the publication of an asset to Kafka on the asset's page.

The sensor `<asset>_sink` reads the progress from the topic. It reports an observation of the
asset and the check `topic_keeps_up`, at most once in five minutes, and at once if the check's
outcome changes. The asset's page can run the check at any time. Neither uses the engine.
"""

import json
import time
from collections.abc import Mapping

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.base.counts import format_count
from tidemark.base.errors import TidemarkError
from tidemark.base.instants import describe, is_wait_over
from tidemark.define.definition import Definition
from tidemark_assets.base.cells import literal
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.page_checks import page_check
from tidemark_assets.metadata.run_metadata import as_timestamp
from tidemark_assets.sensors.arrivals import TICK_SECONDS
from tidemark_streaming.sink.status import SinkStatus, sink_status

KEEPS_UP = "topic_keeps_up"

REPORT_EVERY = 300.0
"""Seconds between two reports while the check's outcome is the same."""

WITHIN = 300_000_000
"""The microseconds for which a version may wait for its publication."""


def sink(transform: Definition, names: Names = PLAIN) -> dg.Definitions:
    """Create the sensor and the check of an asset that publishes to a topic."""
    name = transform.name

    @dg.sensor(
        name=names.own(f"{name}_sink"),
        required_resource_keys=names.needs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(f"Reports how far {transform.sink} is behind {name}. It launches nothing."),
    )
    def sensor(context: SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tidemark = names.tidemark(context)
        found = check_progress(names, transform, tidemark)
        before, now = json.loads(context.cursor or '{"at": 0, "passed": null}'), time.time()
        description = found.description or ""
        if found.passed == before["passed"] and not is_wait_over(REPORT_EVERY, before["at"], now):
            return dg.SkipReason(description)
        seen = dg.AssetObservation(names.key(transform.table), metadata=found.metadata)
        memory = json.dumps({"at": now, "passed": found.passed})
        return dg.SensorResult(skip_reason=description, cursor=memory, asset_events=[seen, found])

    check = page_check(
        transform,
        names,
        KEEPS_UP,
        f"Published changes reach {transform.sink} within {describe(WITHIN)}.",
        lambda tidemark: check_progress(names, transform, tidemark),
    )
    return dg.Definitions(sensors=[sensor], asset_checks=[check])


def check_progress(
    names: Names, transform: Definition, tidemark: TidemarkResource
) -> dg.AssetCheckEvaluation:
    """Return whether the topic has all published versions.

    The result is a warning if a version waits for too long or the brokers do not respond, and an
    error if the problem is not transient.
    """
    try:
        stands = sink_status(tidemark.tables, transform)
    except TidemarkError as error:
        return _evaluation(names, transform, literal(str(error)), retriable=error.retriable)
    facts: dict[str, dg.MetadataValue | str | int] = {
        "topic": stands.topic,
        "published version": stands.version,
        "versions behind": stands.behind,
        "last transaction": as_timestamp(stands.at),
        "last published run": stands.run or "none",
    }
    late = stands.since is not None and time.time_ns() // 1000 - stands.since > WITHIN
    behind = f"is {_versions(stands.behind)} behind" if stands.behind else "is up to date"
    if late:
        return _evaluation(names, transform, _describe_delay(transform, stands), facts=facts)
    return _evaluation(names, transform, f"The topic {behind}.", passed=True, facts=facts)


def _versions(count: int) -> str:
    return format_count(count, "version")


def _describe_delay(transform: Definition, stands: SinkStatus) -> str:
    are = "is" if stands.behind == 1 else "are"
    return (
        f"{_versions(stands.behind)} of the table {are} not published to the topic yet, the oldest "
        f"for more than {describe(WITHIN)}. A running stream of {transform.name} publishes all "
        f"versions, and so does `tidemark sink {transform.name}`."
    )


def _evaluation(
    names: Names,
    transform: Definition,
    description: str,
    *,
    passed: bool = False,
    retriable: bool = True,
    facts: Mapping[str, dg.MetadataValue | str | int] | None = None,
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=names.key(transform.table),
        check_name=KEEPS_UP,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN if retriable else dg.AssetCheckSeverity.ERROR,
        description=description,
        metadata={"publishes to": str(transform.sink), **(facts or {})},
    )
