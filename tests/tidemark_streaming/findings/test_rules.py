"""Each kind of finding follows from the state of a home alone."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidemark.base.instants import parse_duration
from tidemark.store import operations
from tidemark.store.integrity.damage import Damage
from tidemark.store.lineage import Stale
from tidemark.store.operations import Operation
from tidemark_streaming.base.extra import PipelineOverview
from tidemark_streaming.base.foreground import Command
from tidemark_streaming.findings.finding import Finding, Kind
from tidemark_streaming.findings.home_state import (
    AssetState,
    HomeState,
    SourceState,
)
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.findings.polls import Backlog, SinkOverview
from tidemark_streaming.findings.services import IngestState, Services
from tidemark_streaming.ingest.future_watermark import FutureWatermark
from tidemark_streaming.snapshot.check_results import IntegrityFault
from tidemark_streaming.snapshot.held_back import HeldBack
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.windows import QuarantineCounts
from tidemark_streaming.streams.stream_states import StreamState

HOUR, MINUTE = parse_duration("1 hour"), parse_duration("1 minute")
NOW = 500_000 * HOUR
SERVICES = Services({}, disk_free=50, disk_size=100)
QUIET = HomeState(NOW, SERVICES)
SOURCE = SourceState(SourceSnapshot("orders", 1, 1, NOW, NOW, None, NOW, NOW, 1, 0, {}, {}, 0))
ASSET = AssetState(AssetSnapshot("hourly", "orders", 0, NOW, 1, 0, 1, 0, 0, 0, 0, None, None))
STALE = Stale("orders", "'x' was dropped", "`tidemark rebuild orders`")
AHEAD = FutureWatermark("orders", 3, NOW + 9 * HOUR, NOW, NOW + 9 * HOUR, "1.csv#2")
FAULT = IntegrityFault(
    "hourly",
    ["matches_log()"],
    2,
    NOW,
    datetime(2026, 1, 1, tzinfo=UTC),
    "`tidemark backfill hourly`.",
)


class Lane:
    """A pipeline of an extra."""

    name = "copy"


def with_services(**changed: object) -> HomeState:
    return replace(QUIET, services=replace(SERVICES, **changed))


def with_source(**changed: object) -> HomeState:
    return replace(QUIET, sources={"orders": replace(SOURCE, **changed)})


def with_asset(**changed: object) -> HomeState:
    return replace(QUIET, assets={"hourly": replace(ASSET, **changed)})


def with_snapshot(**changed: object) -> HomeState:
    return with_source(snapshot=replace(SOURCE.snapshot, **changed))


STATES = {
    Kind.DEFINITION: replace(QUIET, definition_errors={"shop.sources": "sources.py, line 1: no."}),
    Kind.DAMAGED_TABLE: replace(QUIET, damages=[Damage("orders_log", "has 3 rows")]),
    Kind.UNREADABLE: replace(QUIET, troubles={"orders": "No such file."}),
    Kind.UNFINISHED: replace(
        QUIET, operations=[Operation("o1", operations.Kind.ERASE, "source orders", NOW)]
    ),
    Kind.STALE: with_source(stale=STALE),
    Kind.BLOCKED_SOURCE: with_services(ingests={"orders": IngestState(refused="No.")}),
    Kind.STOPPED_INGEST: with_services(
        ingests={"orders": IngestState(following=Command("ingest", "orders", NOW, runs=False))}
    ),
    Kind.STOPPED_STREAM: with_services(streams={"hourly": StreamState("given up", 10, "No.")}),
    Kind.STOPPED_SINK: with_services(sinks={"hourly": StreamState("ended", error="No.")}),
    Kind.STOPPED_PIPELINE: replace(
        QUIET,
        pipelines={"lane": [PipelineOverview(Lane(), "ended")]},  # pyright: ignore[reportArgumentType]
    ),
    Kind.KAFKA_UNAVAILABLE: with_source(backlog=Backlog({}, "No answer.", retriable=True)),
    Kind.SINK_BEHIND: replace(
        QUIET, sinks=[SinkOverview("hourly", "panes", behind=3, since=NOW - 27 * MINUTE)]
    ),
    Kind.WATERMARK_AHEAD: with_source(ahead=AHEAD),
    Kind.HELD_BACK: with_source(held_back=HeldBack("rates", None, None, "sales", NOW)),
    Kind.INTEGRITY_FAULT: with_asset(fault=FAULT),
    Kind.QUARANTINE: with_asset(quarantine=QuarantineCounts(623, 1, {"positive(x)": 623})),
    Kind.DEAD_LETTERS: with_snapshot(dead_letters=1),
    Kind.UNDECLARED_FIELDS: with_snapshot(undeclared={"battery": 0}),
    Kind.DISK_FULL: with_services(disk_free=9),
}


def test_a_home_without_problems_has_no_findings() -> None:
    assert list_findings(QUIET) == ()
    both = replace(QUIET, sources={"orders": SOURCE}, assets={"hourly": ASSET})
    assert list_findings(both) == ()


@pytest.mark.parametrize("kind", Kind)
def test_a_problem_is_one_finding_with_cause_and_remedy(kind: Kind) -> None:
    (finding,) = list_findings(STATES[kind])
    assert finding.kind is kind
    for text in (finding.cause, finding.remedy):
        assert text.endswith("."), text
        assert "None" not in text
    without_command = {Kind.DEFINITION, Kind.UNDECLARED_FIELDS, Kind.STOPPED_INGEST}
    assert ("`tidemark" in str(finding)) or kind in without_command


def test_errors_come_first_and_no_finding_hides_another() -> None:
    merged = replace(
        QUIET,
        sources=STATES[Kind.WATERMARK_AHEAD].sources,
        assets=STATES[Kind.QUARANTINE].assets,
        sinks=STATES[Kind.SINK_BEHIND].sinks,
        services=STATES[Kind.DISK_FULL].services,
    )
    findings = list_findings(merged)
    assert [(f.kind, f.level) for f in findings] == [
        (Kind.WATERMARK_AHEAD, "error"),
        (Kind.DISK_FULL, "error"),
        (Kind.SINK_BEHIND, "warning"),
        (Kind.QUARANTINE, "warning"),
    ]


@pytest.mark.parametrize(
    ("waited", "behind"), [(4 * MINUTE, False), (6 * MINUTE, True), (27 * MINUTE, True)]
)
def test_a_topic_may_lack_a_version_for_five_minutes(waited: int, behind: bool) -> None:
    sink = SinkOverview("hourly", "panes", behind=3, since=NOW - waited)
    findings = list_findings(replace(QUIET, sinks=[sink]))
    assert bool(findings) == behind
    if behind:
        minutes = waited // MINUTE
        assert (
            f"lacks 3 versions of hourly, the oldest of them for {minutes} minutes."
            in findings[0].cause
        )


STREAM_LEVELS = {
    "running": None,
    "starting": None,
    "waiting": "warning",
    "unknown": "warning",
    "given up": "error",
    "ended": "error",
    "engine down": "error",
}


@pytest.mark.parametrize(("state", "level"), STREAM_LEVELS.items())
def test_a_stream_that_may_recover_is_a_warning(state: str, level: str | None) -> None:
    findings = list_findings(with_services(streams={"hourly": StreamState(state)}))
    assert [finding.level for finding in findings] == ([] if level is None else [level])


def test_the_hint_for_a_stream_without_a_supervisor_depends_on_the_daemon() -> None:
    def remedy(*, daemon: bool) -> str:
        state = with_services(up={"daemon": daemon}, streams={"hourly": StreamState("unknown")})
        (finding,) = list_findings(state)
        return finding.remedy

    assert "`tidemark up` starts one" in remedy(daemon=False)
    assert "`tidemark up`" not in remedy(daemon=True)
    assert "turn its sensor on in Dagster" in remedy(daemon=True)


def test_json_has_plain_values() -> None:
    (finding,) = list_findings(STATES[Kind.UNFINISHED])
    told = finding.to_json()
    assert told["kind"] == "unfinished_operation"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["since"])
    assert Finding(Kind.QUARANTINE, "warning", "asset a", "b.", "c.").to_json()["since"] is None
