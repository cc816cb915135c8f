"""Supervise streams: compare the streams that should run with the streams that do run.

Each poll compares the requests (`desired_streams`) with the engine's queries, and returns the
status of each requested stream, which says whether to start the stream now. The poll itself starts
nothing. A stream that ended or could not be started waits before its next start. The wait is half a
minute, then twice as long each time, up to half an hour. After `TRIES` failures in a row without
steady work (`STEADY`), the supervisor gives the stream up until a user starts it. If the engine did
not respond, the stream is restarted as soon as the engine responds again, even during a wait. The
record of each domain's supervisor has the latest status, for programs that show streams without the
engine.

A stream that did not end through its own fault is restarted at once, and its earlier failures are
forgotten. That is the case if its definition has changed, or if its worker or its engine was
killed. If the stream ends like this again before it has worked steadily, it waits like any other
stream: probably two definitions alternate, or the stream needs more memory than the machine has.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.connect.streaming.query import StreamingQuery

from tidemark import engine
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.store.workers.record_store import SUPERVISOR, records_of
from tidemark_streaming.streams import continuous, desired_streams, queries
from tidemark_streaming.streams.queries import Query

SECOND = 1_000_000
FIRST_WAIT = 30 * SECOND
LONGEST_WAIT = 1800 * SECOND
STEADY = 600 * SECOND
"""The time after which a running stream's earlier failures are forgotten."""

TRIES = 10

RUNNING, WAITING, STARTING, GIVEN_UP = "running", "waiting", "starting", "given up"


@dataclass(frozen=True)
class Stream:
    """The supervisor's status of a stream. Instants are microseconds.

    Args:
        since: the time of the request for the stream.
        state: `running`, `starting` (requested), `waiting` (for its next start) or `given up`.
        changed: when the stream entered its state.
        query, query_run: the IDs of the query that runs, or ran last.
        failures: how often in a row the stream ended or could not be started.
        error: why the stream ended last, in one line.
        renewed: true if the stream was restarted at once, and has not worked steadily since.
        restarts: how often the stream was restarted, for any reason.
        away: true if the last failure was that the engine did not respond.
    """

    since: int
    state: str = WAITING
    changed: int = 0
    query: str | None = None
    query_run: str | None = None
    failures: int = 0
    error: str | None = None
    renewed: bool = False
    restarts: int = 0
    away: bool = False

    @property
    def wait_micros(self) -> int:
        """The time to wait before the next start, in microseconds."""
        if self.failures:
            return min(FIRST_WAIT * 2 ** (self.failures - 1), LONGEST_WAIT)
        return 0


class Ending(NamedTuple):
    """The reason why a stream ended, and whether the stream itself caused it.

    Args:
        message: why the stream ended, in one line.
        blameless: true if the end was not the stream's own fault.
        away: true if the engine did not respond.
    """

    message: str
    blameless: bool = False
    away: bool = False


def poll_streams(
    settings: Settings,
    assets: Iterable[str],
    previous: Mapping[str, Stream],
    polled_at: int,
    *,
    starting: bool = False,
) -> dict[str, Stream]:
    """Return the status of the requested streams, by asset. Streams to start now are `starting`.

    Args:
        assets: the assets for which the supervisor is responsible.
        previous: the result of the last poll.
        polled_at: the time, in microseconds.
        starting: true if the orchestrator currently executes a run that starts streams.
    """
    supervised = set(assets)
    streams_before = dict[str, Stream]()
    for asset, request in desired_streams.read_all(settings).items():
        if asset not in supervised:
            continue
        stream = previous.get(asset)
        if stream is None or stream.since != request.since:
            stream = Stream(request.since)
        streams_before[asset] = stream
    if not streams_before:
        return {}
    running = dict[str, Query]()
    outage = None
    try:
        running = queries.find_running(settings, streams_before)
    except EngineError as error:
        outage = error
    if not starting:
        streams_before = _with_running(settings, streams_before, running)
        if outage is None:
            streams_before = {
                asset: _end_outage(stream, polled_at) for asset, stream in streams_before.items()
            }
    try:
        if outage is None:
            endings = _find_endings(settings, streams_before, running)
        else:
            endings = _lost_endings(streams_before, outage)
    except EngineError as error:
        # The running streams are known; for the others, the engine does not report why they ended.
        endings = _lost_endings(streams_before, error)
    streams = dict[str, Stream]()
    for asset, stream in streams_before.items():
        query = running.get(asset)
        ending = endings.get(asset)
        status = _next_status(stream, query, ending, polled_at, starting=starting)
        streams[asset] = _wait_one_poll(status, previous.get(asset))
    return streams


def _with_running(
    settings: Settings, streams: Mapping[str, Stream], running: Collection[str]
) -> dict[str, Stream]:
    """Return the streams. A `starting` stream whose query has started and ended becomes `running`.

    The query may have ended so soon after its start that no poll saw it run.

    Args:
        running: the assets whose queries run now.
    """
    updated = dict(streams)
    for asset, stream in streams.items():
        if stream.state != STARTING or asset in running:
            continue
        start = desired_streams.find_start(settings, asset)
        if start is None or start.since != stream.since or start.run == stream.query_run:
            continue
        restarts = stream.restarts + (stream.query_run is not None)
        ran = replace(stream, query=start.query, query_run=start.run, restarts=restarts)
        updated[asset] = replace(ran, state=RUNNING)
    return updated


def _end_outage(stream: Stream, time_micros: int) -> Stream:
    """End the wait of a stream that waited only for the engine, which now responds."""
    if not (stream.away and stream.state in (WAITING, GIVEN_UP)):
        return stream
    return replace(stream, state=WAITING, changed=time_micros, failures=0, away=False)


def _wait_one_poll(stream: Stream, previous: Stream | None) -> Stream:
    """Set a stream from `starting` to `waiting` if it was `starting` at the last poll as well, but
    for a different start. Return any other stream unchanged.

    The earlier start was for another request, or its query has ended since. The orchestrator
    launches a run only if a stream changes to `starting`, which the next poll does.

    Args:
        previous: the status at the last poll; None if there was none.
    """
    if previous is None or not previous.state == stream.state == STARTING:
        return stream
    same = (previous.since, previous.query_run) == (stream.since, stream.query_run)
    if same:
        return stream
    return replace(stream, state=WAITING)


def _next_status(
    stream: Stream, query: Query | None, ending: Ending | None, time_micros: int, *, starting: bool
) -> Stream:
    if time_micros < stream.changed:
        # The clock was set back, so the time that the stream has waited is unknown.
        stream = replace(stream, changed=time_micros - stream.wait_micros)
    if query is not None:
        steady = stream.state == RUNNING and time_micros - stream.changed >= STEADY
        if steady:
            stream = replace(stream, failures=0, error=None, renewed=False)
        if stream.query_run not in (None, query.run):
            stream = replace(stream, restarts=stream.restarts + 1)
        stream = replace(stream, query=query.id, query_run=query.run, away=False)
        return _with_state(stream, RUNNING, time_micros)
    if stream.state == STARTING and starting:
        return stream
    if ending is not None and ending.blameless and not stream.renewed:
        renewed = replace(stream, failures=0, error=ending.message, renewed=True)
        return _with_state(renewed, WAITING if starting else STARTING, time_micros)
    if stream.state in (RUNNING, STARTING):
        if ending is None and stream.state == RUNNING:
            ending = Ending("Another process stopped it.")
        elif ending is None:
            ending = Ending("The run that should start it failed.")
        failures = stream.failures + 1
        failed = replace(stream, failures=failures, error=ending.message, away=ending.away)
        return _with_state(failed, GIVEN_UP if failures >= TRIES else WAITING, time_micros)
    has_waited = time_micros - stream.changed >= stream.wait_micros
    if stream.state == WAITING and has_waited and not starting:
        return _with_state(stream, STARTING, time_micros)
    return stream


def _with_state(stream: Stream, state: str, time_micros: int) -> Stream:
    if stream.state == state:
        return stream
    return replace(stream, state=state, changed=time_micros)


def _lost_endings(streams: Mapping[str, Stream], error: EngineError) -> dict[str, Ending]:
    """Return an ending for each stream, with the error of the engine as the reason.

    It is for an engine that does not respond and therefore can't report why streams ended.
    """
    return {a: Ending(str(error), s.state == RUNNING, away=True) for a, s in streams.items()}


def _find_endings(
    settings: Settings, streams: Mapping[str, Stream], running: Collection[str]
) -> dict[str, Ending]:
    """Return why streams that ran at the last poll have ended, if their queries report a reason."""
    by_asset: dict[str, Ending] = {}
    for asset, stream in streams.items():
        if stream.state != RUNNING or asset in running or not (stream.query and stream.query_run):
            continue
        with engine.visit_session(settings, continuous.session_id(settings, asset)) as spark:
            query = StreamingQuery(spark, stream.query, stream.query_run)  # pyright: ignore[reportArgumentType]
            try:
                failure = query.exception()
            except PySparkException:
                # The engine does not know the query.
                by_asset[asset] = Ending("The engine that ran it no longer exists.", blameless=True)
                continue
            if failure is not None:
                blameless = continuous.is_outdated(failure) or continuous.has_crashed(failure)
                by_asset[asset] = Ending(continuous.failure_reason(failure), blameless)
    return by_asset


STALE_STATUS = 120_000_000
"""The microseconds after which a status is stale."""


def write_statuses(
    settings: Settings, domain: str, streams: Mapping[str, Stream], time_micros: int
) -> None:
    """Store the status of a domain's streams in the record of the domain's supervisor."""
    statuses = {asset: asdict(stream) for asset, stream in streams.items()}
    records_of(settings).change_record(
        SUPERVISOR,
        domain,
        lambda record: replace(record, report={"at": time_micros, "streams": statuses}),
    )


def read_statuses(
    settings: Settings, time_micros: int, lasts: int = STALE_STATUS
) -> dict[str, Stream]:
    """Return the latest status of each stream, by asset. Omit stale statuses.

    A status from the future is stale too: the clock was set back, so the status's age is unknown.

    Args:
        time_micros: the time, in microseconds.
        lasts: the microseconds after which a status is stale.
    """
    statuses: dict[str, Stream] = {}
    for record in records_of(settings).list_records(SUPERVISOR):
        if record.report and 0 <= time_micros - record.report["at"] <= lasts:
            streams = record.report["streams"].items()
            statuses |= {asset: Stream(**stream) for asset, stream in streams}
    return statuses
