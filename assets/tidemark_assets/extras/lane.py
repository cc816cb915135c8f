"""Lanes in Dagster: the topics to which they write, and their status.

A lane is a query in a separate Spark, which Dagster neither starts nor runs: its topics are
external assets. The sensor `<domain>_reports` queries each lane's Spark for its status. It reports
an observation and the check `lane_runs` for each topic, immediately if the status changes,
otherwise every five minutes. The topics' pages can run the check at any time.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from tidemark.define.source import lookup_name
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.checks.page_checks import page_check
from tidemark_assets.reports.run_events import AssetEvent
from tidemark_assets.sensors.frame import (
    PartResult,
    SensorPart,
    Tick,
    report_state,
)
from tidemark_assets.tables.options import DagsterOptions
from tidemark_assets.tables.source_assets import connector_asset, reference_assets
from tidemark_streaming.extras.lane.definition import OTHERS, Lane
from tidemark_streaming.extras.lane.progress import LaneStatus, lane_status
from tidemark_streaming.home.domains import Domains

RUNS = "lane_runs"


def definitions(
    group: str, domains: Domains, show: DagsterOptions, names: Names = PLAIN
) -> Iterator[dg.Definitions]:
    """Yield the topics of a domain's lanes with their checks."""
    lanes = domains.pipelines_of(Lane)
    if not lanes:
        return
    all_checks = list[dg.AssetChecksDefinition]()
    for lane in lanes.values():
        all_checks.extend(_checks(lane, names))
    yield dg.Definitions(
        assets=_assets(lanes, domains, group, show, names), asset_checks=all_checks
    )


def sensor_parts(domains: Domains, names: Names = PLAIN) -> list[SensorPart]:
    """Return the parts of a domain's sensor that report its lanes."""
    return [_reporter(lane, names) for lane in domains.pipelines_of(Lane).values()]


def _assets(
    lanes: Mapping[str, Lane], domains: Domains, group: str, show: DagsterOptions, names: Names
) -> list[dg.AssetSpec]:
    """Return the topics of lanes, and the external assets of their sources unless the domain also
    ingests these sources."""
    specs: dict[dg.AssetKey, dg.AssetSpec] = {}
    for lane in lanes.values():
        if lane.source.name not in domains.ingestions:
            options = show.of_source(lane.source.name, names.own(group))
            before = [connector_asset(lane.connector, options, names)]
            before += reference_assets(lane.source, options, names)
            specs |= {spec.key: spec for spec in before}
        specs |= {spec.key: spec for spec in _topics(lane, group, show, names)}
    return list(specs.values())


def _reporter(lane: Lane, names: Names) -> SensorPart:
    """Return the reporter of a lane's status: if the lane was started, it should be running."""

    def report(tick: Tick) -> PartResult:
        status = lane_status(tick.tidemark.settings, lane)
        metadata = {"runs": status.runs, "lane": lane.name}
        events = list[AssetEvent]()
        for key in topic_keys(lane, names):
            events += [dg.AssetObservation(key, metadata=metadata), _check_result(key, status)]
        return report_state(tick.memory, status.message, status.message, events)

    return SensorPart(f"{lane.name}_lane", report)


def topic_keys(lane: Lane, names: Names = PLAIN) -> list[dg.AssetKey]:
    """Return the assets of the topics to which a lane writes.

    If several lanes write to one topic, the topic is a separate asset for each lane.
    """
    topics = dict.fromkeys(lane.outputs)
    return [names.key(lane.name, topic) for topic in topics]


def _checks(lane: Lane, names: Names) -> Iterator[dg.AssetChecksDefinition]:
    description = f"If {lane} was started, it is running."
    for key in topic_keys(lane, names):
        yield page_check(
            key,
            names,
            RUNS,
            description,
            lambda tidemark, key=key: _check_result(key, lane_status(tidemark.settings, lane)),
        )


def _check_result(key: dg.AssetKey, status: LaneStatus) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=RUNS,
        passed=status.runs or not status.started,
        severity=dg.AssetCheckSeverity.ERROR,
        description=status.message,
    )


def _topics(lane: Lane, group: str, show: DagsterOptions, names: Names) -> Iterator[dg.AssetSpec]:
    above = [f"{lane.source.name}_connector", *map(lookup_name, lane.lookup_names)]
    servers = {topic.name: topic.broker_addresses for topic in lane.output_topics}
    for key in topic_keys(lane, names):
        topic = key.path[-1]
        yield dg.AssetSpec(
            key,
            deps=[*map(names.key, above)],
            description=_describe_topic(lane, topic),
            metadata={
                "topic": topic,
                "servers": servers[topic],
                "lane": lane.name,
                "from": ", ".join(lane.inputs),
                "checkpoint every": lane.checkpoint,
            },
            group_name=names.own(group),
            owners=show.owners,
            tags={"tidemark/source": lane.source.name, **show.tags},
            kinds={"kafka"},
        )


def _describe_topic(lane: Lane, topic: str) -> str:
    values = [value for value, target in lane.topics_by_route.items() if target.name == topic]
    if not values:
        return (
            f"Records that {lane} can't decode or that are not valid, with their bytes and the "
            "reason."
        )
    routed = ", ".join("any other value" if value == OTHERS else f"'{value}'" for value in values)
    which = f", if `{lane.route}` is {routed}" if lane.route else ""
    description = (
        f"Records of {lane.source.name}, transformed by {lane} within milliseconds{which}."
    )
    return f"{lane.prepare.__doc__ or ''}\n\n{description}".strip()
