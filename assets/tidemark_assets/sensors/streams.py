"""Supervise streams from Dagster.

A stream is a query of the engine. It is not a Dagster run, because such a run would seem to run
forever; a short run starts the stream. The sensor `<domain>_reports` checks whether the stream
still runs, restarts it if necessary, and observes its status on the page of its asset. A stream
that should run and does not is a finding (`tidemark_streaming.findings`). Each stream that should
run has a request; jobs and the command line make the same requests.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.base.instants import INFINITY, format_duration, format_instant, is_wait_over
from tidemark.define.definition import Definition
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.jobs.stream_jobs import start_request
from tidemark_assets.metadata.run_metadata import as_timestamp
from tidemark_assets.sensors.frame import (
    TICK_SECONDS,
    PartResult,
    SensorPart,
    Tick,
    is_running,
)
from tidemark_streaming.base import logs
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import supervisor
from tidemark_streaming.streams.desired_streams import renew_lease
from tidemark_streaming.streams.supervisor import (
    GIVEN_UP,
    RUNNING,
    STARTING,
    WAITING,
    Stream,
    write_statuses,
)

_LEASE_SECONDS = 4 * TICK_SECONDS
"""Seconds after which a supervisor that has not renewed its lease counts as dead."""

_REPORT_EVERY = 300_000_000
"""Microseconds between two reports of a stream that runs without changes."""

_REPORTS = 10
"""Maximum number of reports per tick, because each report reads a few tables.

Streams whose state has changed come first.
"""

_LoggedRuns = dict[str, tuple[str, int]]
"""The table ID and the commit number of the last logged run, by asset."""


def supervisor_part(
    domain: str, transforms: Mapping[str, Definition], job: str, names: Names = PLAIN
) -> SensorPart:
    """Return the part of a sensor that supervises a domain's streams.

    Args:
        job: the job that starts streams.
    """

    def evaluate(tick: Tick) -> PartResult:
        instance = tick.context.instance
        tidemark = tick.tidemark
        settings = tidemark.settings
        current_time = time.time_ns() // 1000
        previous, reported, ran = _known(tick.memory)
        owner = f"Dagster in {instance.root_directory} on {socket.gethostname()}"
        renew_lease(settings, domain, owner, _LEASE_SECONDS)
        starting = is_running(instance, job)
        states = supervisor.poll_streams(
            settings, transforms, previous, current_time, starting=starting
        )
        write_statuses(settings, domain, states, current_time)
        changed = [
            a for a, s in states.items() if a not in previous or previous[a].state != s.state
        ]
        due = [
            a
            for a in states
            if a not in changed and is_wait_over(_REPORT_EVERY, reported[a], current_time)
        ]
        snapshot = tidemark.snapshot(*transforms.values())
        if logs.begin_logging(settings, "supervisor", guest=True):
            for asset in changed:
                _log_state(asset, states[asset])
            ran = _log_runs(snapshot, states, ran)
        seen = [*changed, *due][:_REPORTS]
        reported |= dict.fromkeys(seen, current_time)
        events = [_observe(names, snapshot, transforms[asset], states[asset]) for asset in seen]
        fresh = [a for a in changed if states[a].state == STARTING]
        requests = list[dg.RunRequest]()
        if fresh:
            requests.append(_request(domain, job, names, fresh, states, current_time))
        memory = {
            "streams": {a: asdict(s) for a, s in states.items()},
            "reported": {a: reported.get(a, 0) for a in states},
            "ran": ran,
        }
        return PartResult(_describe(states, current_time), events, memory, requests)

    return SensorPart("streams", evaluate)


def _known(
    memory: Mapping[str, Any] | None,
) -> tuple[dict[str, Stream], dict[str, int], _LoggedRuns]:
    if memory is None:
        return {}, {}, _LoggedRuns()
    ran = _LoggedRuns()
    for asset, (table_id, commit_number) in memory["ran"].items():
        ran[asset] = (table_id, commit_number)
    return {a: Stream(**s) for a, s in memory["streams"].items()}, memory["reported"], ran


def _request(
    domain: str,
    job: str,
    names: Names,
    chosen: list[str],
    states: Mapping[str, Stream],
    current_time: int,
) -> dg.RunRequest:
    tries = ", ".join(f"{a} (start {states[a].failures + 1})" for a in chosen)
    config = {"assets": chosen, "since": {a: states[a].since for a in chosen}}
    return dg.RunRequest(
        run_key=f"{' '.join(chosen)} {current_time}",
        job_name=job,
        run_config=start_request(domain, names, config),
        tags={"tidemark/streams": tries},
    )


def _observe(
    names: Names, snapshot: Snapshot, transform: Definition, stream: Stream
) -> dg.AssetObservation:
    source = snapshot.read_source(transform.source)
    asset = snapshot.read_asset(transform)
    return dg.AssetObservation(
        names.key(transform.published_table),
        description=f"The stream is {stream.state}.",
        metadata={
            "stream": stream.state,
            "lag in arrivals": asset.behind,
            "up to date through arrival": asset.as_of,
            **({"limited": asset.waiting_text} if asset.limited_by else {}),
            "watermark now": as_timestamp(asset.watermark),
            "watermark lag": _lag(source, asset),
            "windows": asset.windows,
            "open windows": asset.open,
            "late events in windows": asset.late,
            "too late events": asset.too_late,
            "consecutive failures": stream.failures,
            "restarts": stream.restarts,
            **({"last error": stream.error} if stream.error else {}),
        },
    )


def _lag(source: SourceSnapshot, asset: AssetSnapshot) -> str:
    """Return how far the asset's watermark is behind the newest event."""
    if source.newest_event is None or asset.watermark is None or asset.watermark >= INFINITY:
        return "none"
    return format_duration(max(0, source.newest_event - asset.watermark) // 1_000_000 * 1_000_000)


def _describe(states: Mapping[str, Stream], current_time: int) -> str:
    if not states:
        return "No stream should be running."
    return " ".join(_sentence(asset, stream, current_time) for asset, stream in states.items())


def _sentence(asset: str, stream: Stream, current_time: int) -> str:
    ended = f": {stream.error}" if stream.error else "."
    if stream.state == RUNNING:
        return (
            f"{asset} has been running since "
            f"{format_instant(stream.changed // 1_000_000 * 1_000_000)}."
        )
    if stream.state == WAITING:
        left = max(0, stream.changed + stream.wait_micros - current_time) // 1_000_000
        return f"{asset} will be restarted in {format_count(left, 'second')}{ended}"
    if stream.state == GIVEN_UP:
        return f"{asset} was given up after {stream.failures} attempts{ended}"
    return f"{asset} is being started."


def _log_state(asset: str, stream: Stream) -> None:
    log = logs.log_warning if stream.state in (WAITING, GIVEN_UP) else logs.log_event
    log(
        f"stream {stream.state}",
        asset=asset,
        query=stream.query,
        failures=stream.failures,
        restarts=stream.restarts,
        error=stream.error,
    )


def _log_runs(snapshot: Snapshot, streams: Mapping[str, Stream], seen: _LoggedRuns) -> _LoggedRuns:
    """Log the runs of streams since the last poll. Return the last logged run of each stream.

    The last runs of a stream that was stopped since the last poll are also logged. Runs before the
    first poll of a stream are not logged.

    Args:
        seen: the result of the last poll.
    """
    logged = _LoggedRuns()
    for asset in {**seen, **streams}:
        table_id = snapshot.table_id(asset) or ""
        before = seen.get(asset)
        commit_number = before[1] if before is not None and before[0] == table_id else -1
        runs = snapshot.runs_after(asset, commit_number)
        for run in runs if before is not None else []:
            logs.log_event("ran", **logs.of_run(run))
        logged[asset] = (table_id, runs[-1]["commit_number"] if runs else commit_number)
    return {asset: logged[asset] for asset in streams}
