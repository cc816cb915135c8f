"""Report the publication of an asset to Kafka on the asset's page.

A tick reads the progress from the topic. It reports an observation of the asset and the check
`topic_keeps_up`, immediately if the check's outcome changes, otherwise every five minutes. The
asset's page can run the check at any time. Neither the tick nor the check uses the engine.
"""

import time
from collections.abc import Mapping

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.base.errors import TidemarkError
from tidemark.base.instants import describe
from tidemark.define.definition import Definition
from tidemark_assets.base.cells import literal
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.page_checks import page_check
from tidemark_assets.metadata.run_metadata import as_timestamp
from tidemark_assets.sensors.frame import Report, Reporter, Tick, report_state
from tidemark_streaming.sink.writer import SinkStatus, sink_status

KEEPS_UP = "topic_keeps_up"

WITHIN = 300_000_000
"""How long a version of the table may wait for its publication to the topic, in microseconds."""


def sink_reporter(transform: Definition, names: Names = PLAIN) -> Reporter:
    """Return the reporter of how much of an asset is published to its topic."""

    def report(tick: Tick) -> Report:
        found = _check_progress(names, transform, tick.tidemark)
        seen = dg.AssetObservation(names.key(transform.table), metadata=found.metadata)
        return report_state(tick.memory, found.passed, found.description or "", [seen, found])

    return Reporter(f"{transform.name}_sink", report)


def sink_check(transform: Definition, names: Names = PLAIN) -> dg.AssetChecksDefinition:
    """Return the check `topic_keeps_up` of an asset that publishes to a topic."""
    return page_check(
        names.key(transform.table),
        names,
        KEEPS_UP,
        f"Published changes reach {transform.sink} within {describe(WITHIN)}.",
        lambda tidemark: _check_progress(names, transform, tidemark),
    )


def _check_progress(
    names: Names, transform: Definition, tidemark: TidemarkResource
) -> dg.AssetCheckEvaluation:
    """Return the result of the check whether the topic has all versions of the published table.

    The result is a warning if a version waits for too long or the brokers do not respond, and an
    error if the problem is not transient.
    """
    try:
        status = sink_status(tidemark.tables, transform)
    except TidemarkError as error:
        return _evaluation(names, transform, literal(str(error)), retriable=error.retriable)
    facts: dict[str, dg.MetadataValue | str | int] = {
        "topic": status.topic,
        "published version": status.version,
        "versions behind": status.behind,
        "last transaction": as_timestamp(status.at),
        "last published run": status.run or "none",
    }
    late = status.since is not None and time.time_ns() // 1000 - status.since > WITHIN
    behind = f"is {_versions(status.behind)} behind" if status.behind else "is up to date"
    if late:
        return _evaluation(names, transform, _describe_delay(transform, status), facts=facts)
    return _evaluation(names, transform, f"The topic {behind}.", passed=True, facts=facts)


def _versions(count: int) -> str:
    return format_count(count, "version")


def _describe_delay(transform: Definition, status: SinkStatus) -> str:
    are = "is" if status.behind == 1 else "are"
    return (
        f"{_versions(status.behind)} of the table {are} not published to the topic yet, the oldest "
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
