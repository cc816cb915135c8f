"""The supervisor: do the streams that should run, run?

A look compares the wishes with the queries that the engine has, which takes one question to the
engine however many streams there are, and says which streams to start now. It starts nothing
itself. A stream that ended, or could not be started, waits before it is started again: half a
minute, then twice as long each time, up to half an hour. After `TRIES` times in a row without a
while of steady work it is given up, until somebody starts it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql.connect.streaming.query import StreamingQuery

from tidemark import engine
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark_streaming import continuous, wishes

SECOND = 1_000_000
FIRST_WAIT, LONGEST_WAIT = 30 * SECOND, 1800 * SECOND
STEADY = 600 * SECOND
"""A stream that has run so long has left its earlier failures behind."""

TRIES = 10

RUNNING, WAITING, STARTING, GIVEN_UP = "running", "waiting", "starting", "given up"


@dataclass(frozen=True)
class Stream:
    """What the supervisor remembers of a stream. Instants are microseconds.

    Args:
        since: of the wish that it belongs to.
        state: `running`, `starting` (asked for), `waiting` (for its next start) or `given up`.
        changed: when it came into its state.
        query, query_run: the ids of the query that runs, or ran last.
        failures: how often in a row it ended or could not be started.
        error: why it ended last, in one line.
    """

    since: int
    state: str = WAITING
    changed: int = 0
    query: str | None = None
    query_run: str | None = None
    failures: int = 0
    error: str | None = None

    @property
    def wait(self) -> int:
        """How long to wait for the next start."""
        return min(FIRST_WAIT * 2 ** (self.failures - 1), LONGEST_WAIT) if self.failures else 0


def look(
    settings: Settings,
    assets: Iterable[str],
    known: Mapping[str, Stream],
    now: int,
    *,
    starting: bool = False,
) -> dict[str, Stream]:
    """How the streams that should run are, by asset; those to start now are `starting`.

    Args:
        assets: for which the supervisor is responsible.
        known: what the last look gave.
        now: the time, in microseconds.
        starting: whether a run that starts streams is under way.
    """
    wanted = {a: w for a, w in wishes.all_of(settings).items() if a in set(assets)}
    if not wanted:
        return {}
    before = {
        a: known[a] if a in known and known[a].since == w.since else Stream(w.since)
        for a, w in wanted.items()
    }
    try:
        running, errors = _queries(settings, before)
    except EngineError as error:
        running, errors = {}, dict.fromkeys(before, str(error))
    return {
        asset: _next(stream, running.get(asset), errors.get(asset), now, starting=starting)
        for asset, stream in before.items()
    }


def _next(
    stream: Stream, query: tuple[str, str] | None, error: str | None, now: int, *, starting: bool
) -> Stream:
    if query is not None:
        steady = stream.state == RUNNING and now - stream.changed >= STEADY
        stream = replace(stream, failures=0, error=None) if steady else stream
        return _into(replace(stream, query=query[0], query_run=query[1]), RUNNING, now)
    if stream.state == STARTING and starting:
        return stream
    if stream.state in (RUNNING, STARTING):
        reason = error or (
            "It was stopped elsewhere."
            if stream.state == RUNNING
            else "The run that should start it failed."
        )
        failed = replace(stream, failures=stream.failures + 1, error=reason)
        return _into(failed, GIVEN_UP if failed.failures >= TRIES else WAITING, now)
    if stream.state == WAITING and not starting and now - stream.changed >= stream.wait:
        return _into(stream, STARTING, now)
    return stream


def _into(stream: Stream, state: str, now: int) -> Stream:
    return stream if stream.state == state else replace(stream, state=state, changed=now)


def _queries(
    settings: Settings, streams: Mapping[str, Stream]
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """The queries that run, by asset, and why those ended that ran when last looked at."""
    with engine.visit(settings, continuous.session_id(settings)) as spark:
        names = {continuous.name(settings.database, asset): asset for asset in streams}
        running = {names[q.name]: (q.id, q.runId) for q in spark.streams.active if q.name in names}
        errors: dict[str, str] = {}
        for asset, stream in streams.items():
            ended = stream.state == RUNNING and asset not in running
            if ended and stream.query is not None and stream.query_run is not None:
                query = StreamingQuery(spark, stream.query, stream.query_run)  # pyright: ignore[reportArgumentType]
                try:
                    failure = query.exception()
                except PySparkException:
                    # The engine that ran it is gone.
                    failure = None
                if failure is not None:
                    errors[asset] = continuous.why(failure)
    return running, errors
