"""The list of findings of a home, computed from its state alone.

To add a kind, add it to `Kind`, write a function that yields its findings, and add that function to
`_RULES`.
"""

from collections.abc import Callable, Iterator, Sequence

from tidemark.base.counts import format_count
from tidemark.base.instants import format_duration, format_instant
from tidemark.store.refusals import STORE_ADVICE
from tidemark_streaming.base.foreground import INGEST
from tidemark_streaming.findings.finding import (
    HOME,
    Finding,
    Kind,
    Level,
    asset_node,
    source_node,
)
from tidemark_streaming.findings.home_state import HomeState
from tidemark_streaming.findings.reads import STORE
from tidemark_streaming.streams.stream_states import ENDED, ENGINE_DOWN, UNKNOWN, StreamState
from tidemark_streaming.streams.supervisor import GIVEN_UP, RUNNING, STARTING, WAITING

SINK_SECONDS = 300.0
"""Seconds for which a version of a table may wait for its publication."""

DISK_SHARE = 0.1
"""The free share of the disk below which the disk counts as full."""

_DAEMON = "daemon"


def list_findings(state: HomeState) -> tuple[Finding, ...]:
    """Return what needs a person's attention in a home, errors first."""
    findings = list[Finding]()
    for rule in _RULES:
        findings += rule(state)
    return tuple(sorted(findings, key=lambda finding: finding.level != "error"))


def _definition_errors(state: HomeState) -> Iterator[Finding]:
    for module, message in state.definition_errors.items():
        yield Finding(
            Kind.DEFINITION,
            "error",
            module,
            message,
            f"Correct the module {module}: until then, what it defines is not shown.",
        )


def _damaged_tables(state: HomeState) -> Iterator[Finding]:
    for damage in state.damages:
        yield Finding(
            Kind.DAMAGED_TABLE,
            "error",
            HOME if damage.asset is None else asset_node(damage.asset),
            f"{damage}. The cause is a power failure, a damaged disk, or a copy made of a running "
            "home.",
            "`tidemark fsck` lists all such tables and how to restore them.",
        )


def _unreadable_parts(state: HomeState) -> Iterator[Finding]:
    if state.damages:
        # A read of a damaged table fails, too: the damage explains these errors.
        return
    of_store = state.troubles.get(STORE)
    if of_store is not None:
        cause = of_store.removesuffix(f" {STORE_ADVICE}")
        yield Finding(Kind.UNREADABLE, "error", HOME, cause, STORE_ADVICE)
    for name, message in state.troubles.items():
        if name == STORE:
            continue
        yield Finding(
            Kind.UNREADABLE,
            "error",
            HOME,
            f"{name} can't be read: {message.rstrip('.')}.",
            "`tidemark fsck` checks the tables.",
        )


def _unfinished_operations(state: HomeState) -> Iterator[Finding]:
    for operation in state.operations:
        yield Finding(
            Kind.UNFINISHED,
            "error",
            operation.owner,
            operation.cause,
            operation.remedy,
            operation.began_at,
        )


def _stale_nodes(state: HomeState) -> Iterator[Finding]:
    sources = [(source_node(name), source.stale) for name, source in state.sources.items()]
    assets = [(asset_node(name), asset.stale) for name, asset in state.assets.items()]
    for node, stale in sources + assets:
        if stale is not None:
            cause = f"{stale.node} is stale: {stale.cause}."
            yield Finding(Kind.STALE, "error", node, cause, f"{stale.remedy}.")


def _blocked_sources(state: HomeState) -> Iterator[Finding]:
    for name, ingest in state.services.ingests.items():
        source = state.sources.get(name)
        if source is not None and source.stale is not None:
            # Its ingest was refused for this reason.
            continue
        if ingest.refused is not None:
            yield Finding(
                Kind.BLOCKED_SOURCE,
                "error",
                source_node(name),
                f"{name} is blocked: {ingest.refused}",
                f"Once the cause is fixed, `tidemark ingest {name}` ends this state.",
            )


def _stopped_ingests(state: HomeState) -> Iterator[Finding]:
    for name, ingest in state.services.ingests.items():
        command = ingest.following
        if command is None or command.runs or ingest.refused is not None:
            continue
        reason = "was killed"
        error = ""
        if command.error is not None:
            reason = "has ended with an error"
            error = f" Its error: {command.error}"
        yield Finding(
            Kind.STOPPED_INGEST,
            "error",
            source_node(name),
            f"`tidemark ingest {name} --follow` should run, but {reason}.{error}",
            "Start it again. If it should not run any more, start it and end it with Ctrl-C.",
            command.since,
        )


def _stopped_streams(state: HomeState) -> Iterator[Finding]:
    supervised = state.services.up.get(_DAEMON, False)
    for name, stream in state.services.streams.items():
        if stream.state in (RUNNING, STARTING):
            continue
        level, does, remedy = _describe_stream(name, stream, supervised=supervised)
        cause = f"The stream of {name} {does}."
        if stream.failures:
            cause += f" It has failed {format_count(stream.failures, 'time')} in a row."
        if stream.error is not None:
            cause += f" Its error: {stream.error}"
        yield Finding(Kind.STOPPED_STREAM, level, asset_node(name), cause, remedy)


def _describe_stream(
    asset: str, stream: StreamState, *, supervised: bool
) -> tuple[Level, str, str]:
    """Return the level, the state and the remedy of a stream that does not run.

    Args:
        supervised: true if Dagster's daemon runs, which runs the supervisors.
    """
    detach = f"`tidemark stream {asset} --detach`"
    stop = f"`tidemark stream {asset} --stop`"
    match stream.state:
        case state if state == GIVEN_UP:
            remedy = f"Correct the cause, then start it with {detach}."
            return "error", "was given up", remedy
        case state if state == ENDED:
            command = f"tidemark {stream.kept_by}"
            restart = f"`{command} {asset}`" if stream.kept_by != INGEST else "that command"
            remedy = f"Start {restart} again, or forget it with {stop}."
            return "error", f"has ended with its command `{command}`", remedy
        case state if state == ENGINE_DOWN:
            return "error", "should run, but the engine does not", "`tidemark up` starts it."
        case state if state == WAITING:
            remedy = "It will be started again; if the error stays, correct its cause."
            return "warning", "is not running", remedy
        case state if state == UNKNOWN and supervised:
            remedy = (
                "The supervisor reports within two minutes of its start. Otherwise, turn its "
                "sensor on in Dagster."
            )
            return "warning", "should run, and no supervisor has reported it", remedy
        case _:
            remedy = "`tidemark up` starts one."
            return "warning", "should run, and no supervisor restarts it", remedy


def _stopped_sinks(state: HomeState) -> Iterator[Finding]:
    for name, sink in state.services.sinks.items():
        if sink.state == RUNNING:
            continue
        command = f"`tidemark sink {name} --follow`"
        error = "" if sink.error is None else f" Its error: {sink.error}"
        ended = sink.state == ENDED
        yield Finding(
            Kind.STOPPED_SINK,
            "error" if ended else "warning",
            asset_node(name),
            f"{command} should publish, but {'has ended' if ended else 'waits'}.{error}",
            f"Start {command} again." if ended else "It continues once the cause is fixed.",
        )


def _stopped_pipelines(state: HomeState) -> Iterator[Finding]:
    for extra, pipelines in state.pipelines.items():
        for overview in pipelines:
            if overview.state in (None, RUNNING):
                continue
            name = overview.pipeline.name
            error = "" if overview.error is None else f" Its error: {overview.error}"
            ended = overview.state == ENDED
            yield Finding(
                Kind.STOPPED_PIPELINE,
                "error" if ended else "warning",
                f"{extra} {name}",
                f"The {extra} {name} should run, but {'has ended' if ended else 'waits'}.{error}",
                f"`tidemark {extra} {name}` continues it.",
            )


def _unavailable_brokers(state: HomeState) -> Iterator[Finding]:
    for name, source in state.sources.items():
        if source.backlog is not None and source.backlog.trouble is not None:
            does = "do not answer" if source.backlog.is_silent else "refuse access"
            yield Finding(
                Kind.KAFKA_UNAVAILABLE,
                "error",
                source_node(name),
                f"The brokers of {name} {does}: {source.backlog.trouble}",
                f"Once they answer, `tidemark ingest {name}` continues where the event log ends.",
            )


def _late_sinks(state: HomeState) -> Iterator[Finding]:
    for sink in state.sinks:
        node = asset_node(sink.asset)
        publish = f"`tidemark sink {sink.asset}` publishes all versions, and so does a stream."
        if sink.trouble is not None:
            yield Finding(
                Kind.SINK_BEHIND,
                "warning",
                node,
                f"How far the topic {sink.topic} of {sink.asset} is behind is unknown: "
                f"{sink.trouble}",
                publish,
            )
            continue
        seconds = sink.seconds_behind(state.at)
        if seconds is not None and seconds > SINK_SECONDS:
            versions = format_count(sink.behind or 0, "version")
            yield Finding(
                Kind.SINK_BEHIND,
                "warning",
                node,
                f"The topic {sink.topic} lacks {versions} of {sink.asset}, the oldest of them for "
                f"{_describe_seconds(seconds)}.",
                publish,
                sink.since,
            )


def _watermarks_ahead(state: HomeState) -> Iterator[Finding]:
    for name, source in state.sources.items():
        if source.ahead is not None:
            yield Finding(
                Kind.WATERMARK_AHEAD,
                "error",
                source_node(name),
                source.ahead.cause,
                source.ahead.remedy,
            )


def _held_back(state: HomeState) -> Iterator[Finding]:
    for name, source in state.sources.items():
        held_back = source.held_back
        if held_back is None:
            continue
        watermark = "has no watermark yet"
        if held_back.watermark is not None:
            watermark = f"has the watermark {format_instant(held_back.watermark)}"
        newest = "has no events yet"
        if held_back.newest_event is not None:
            newest = f"has no event after {format_instant(held_back.newest_event)}"
        yield Finding(
            Kind.HELD_BACK,
            "warning",
            source_node(name),
            f"{held_back.base} holds {name} back: {name} {watermark}, because {held_back.base} "
            f"{newest}; "
            f"{held_back.waiting_base} has events up to "
            f"{format_instant(held_back.waiting_newest)}, whose rows wait.",
            f"`tidemark ingest {held_back.base}` ingests newer events. If {held_back.base} can be "
            "silent, "
            f"set heartbeat in {held_back.base} and idle in {name}.",
        )


def _integrity_faults(state: HomeState) -> Iterator[Finding]:
    for name, asset in state.assets.items():
        if asset.fault is not None:
            yield Finding(
                Kind.INTEGRITY_FAULT,
                "error",
                asset_node(name),
                asset.fault.cause,
                asset.fault.remedy[0].upper() + asset.fault.remedy[1:],
                int(asset.fault.since.timestamp() * 1_000_000),
            )


def _quarantined_windows(state: HomeState) -> Iterator[Finding]:
    for name, asset in state.assets.items():
        count = asset.quarantine.quarantined
        if not count:
            continue
        failures = sorted(asset.quarantine.failures.items(), key=lambda item: -item[1])
        failed = ", ".join(f"{expectation} ({n:,})" for expectation, n in failures[:3])
        yield Finding(
            Kind.QUARANTINE,
            "warning",
            asset_node(name),
            f"{format_count(count, 'window')} of {name} {_is_or_are(count)} in quarantine and not "
            f"published; failed expectations: {failed}.",
            f"`tidemark quarantine list {name}` shows them; release or discard them, or fix the "
            f"source and run `tidemark backfill {name}`.",
        )


def _dead_letters(state: HomeState) -> Iterator[Finding]:
    for name, source in state.sources.items():
        if count := source.snapshot.dead_letters:
            yield Finding(
                Kind.DEAD_LETTERS,
                "warning",
                source_node(name),
                f"{format_count(count, 'row')} {_is_or_are(count)} not in the event log of {name}.",
                f"`tidemark dead-letters list {name}` shows why; `tidemark dead-letters replay` "
                "ingests corrected ones.",
            )


def _undeclared_fields(state: HomeState) -> Iterator[Finding]:
    for name, source in state.sources.items():
        if source.snapshot.undeclared:
            fields = ", ".join(
                f"{field} (arrival {arrival})"
                for field, arrival in source.snapshot.undeclared.items()
            )
            yield Finding(
                Kind.UNDECLARED_FIELDS,
                "warning",
                source_node(name),
                f"{name} does not declare some of the received fields, so they are ignored (with "
                f"the newest arrival that has them): {fields}.",
                f"Declare them as columns of {name}.",
            )


def _full_disk(state: HomeState) -> Iterator[Finding]:
    free = state.services.disk_free
    size = state.services.disk_size
    if free < DISK_SHARE * size:
        yield Finding(
            Kind.DISK_FULL,
            "error",
            HOME,
            f"The disk has {free / 1e9:,.1f} GB of {size / 1e9:,.1f} GB left.",
            "`tidemark maintain` removes old files; otherwise, free space on the disk.",
        )


_Rule = Callable[[HomeState], Iterator[Finding]]
_RULES: Sequence[_Rule] = (
    _definition_errors,
    _damaged_tables,
    _unreadable_parts,
    _unfinished_operations,
    _stale_nodes,
    _integrity_faults,
    _blocked_sources,
    _stopped_ingests,
    _stopped_streams,
    _stopped_sinks,
    _stopped_pipelines,
    _unavailable_brokers,
    _watermarks_ahead,
    _full_disk,
    _late_sinks,
    _held_back,
    _quarantined_windows,
    _dead_letters,
    _undeclared_fields,
)


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _describe_seconds(seconds: float) -> str:
    """Return a duration in whole minutes, or in hours or days if it is a multiple of them."""
    return format_duration(max(int(seconds) // 60, 1) * 60_000_000)
