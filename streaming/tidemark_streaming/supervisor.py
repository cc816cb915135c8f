"""The supervisor: do the streams that should run, run?

A look compares the wishes with the queries that the engine has, and says which streams to start
now. It starts nothing itself. A stream that ended, or could not be started, waits before it is
started again: half a minute, then twice as long each time, up to half an hour. After `TRIES` times
in a row without a while of steady work it is given up, until somebody starts it; where it was the
engine that did not answer, until that answers again, which ends a wait too.

A stream that ended through no fault of its own is started at once: because its definition has
changed, with the present one; because its worker was killed, or its engine, which comes back with
it. Its earlier failures are forgotten. Where that happens again before it has worked steadily, two
definitions are at odds with each other, or it takes more memory than there is, and it waits like
any other.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.connect.streaming.query import StreamingQuery

from tidemark import engine
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark_streaming import continuous, queries, wishes
from tidemark_streaming.queries import Query

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
        renewed: whether it was started anew at once, and was not steady since.
        restarts: how often it was started again, through whose fault ever.
        away: whether it could not be started last because the engine did not answer.
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
    def wait(self) -> int:
        """How long to wait for the next start."""
        return min(FIRST_WAIT * 2 ** (self.failures - 1), LONGEST_WAIT) if self.failures else 0


class Ending(NamedTuple):
    """Why a stream ended: in one line, whether that was through no fault of its own, and whether
    the engine did not answer."""

    sentence: str
    blameless: bool = False
    away: bool = False


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
    running, away = dict[str, Query](), None
    try:
        running = queries.running(settings, before)
    except EngineError as error:
        away = error
    if not starting:
        before = _begun(settings, before, running)
        if away is None:
            before = {asset: _reached(stream, now) for asset, stream in before.items()}
    try:
        endings = _endings(settings, before, running) if away is None else _unanswered(before, away)
    except EngineError as error:
        # Those that run are known; of the others nobody says why they ended.
        endings = _unanswered(before, error)
    found = {
        asset: _next(stream, running.get(asset), endings.get(asset), now, starting=starting)
        for asset, stream in before.items()
    }
    return {asset: _asked_anew(stream, known.get(asset)) for asset, stream in found.items()}


def _begun(
    settings: Settings, streams: Mapping[str, Stream], running: Collection[str]
) -> dict[str, Stream]:
    """The streams; those that were started since the last look and have ended by now, as running
    ones: a query may live for less than the time between two looks."""
    found = dict(streams)
    for asset, stream in streams.items():
        if stream.state != STARTING or asset in running:
            continue
        start = wishes.start_of(settings, asset)
        if start is None or start.since != stream.since or start.run == stream.query_run:
            continue
        restarts = stream.restarts + (stream.query_run is not None)
        ran = replace(stream, query=start.query, query_run=start.run, restarts=restarts)
        found[asset] = replace(ran, state=RUNNING)
    return found


def _reached(stream: Stream, now: int) -> Stream:
    """A stream whose engine answers: where that was all that it waited for, it waits no more."""
    if not (stream.away and stream.state in (WAITING, GIVEN_UP)):
        return stream
    return replace(stream, state=WAITING, changed=now, failures=0, away=False)


def _asked_anew(stream: Stream, known: Stream | None) -> Stream:
    """A stream that is to be started again, or for another wish, while it was being started: who
    starts streams sees by a change of its state that it is asked for, so it waits for a look."""
    if known is None or not known.state == stream.state == STARTING:
        return stream
    same = (known.since, known.query_run) == (stream.since, stream.query_run)
    return stream if same else replace(stream, state=WAITING)


def _next(
    stream: Stream, query: Query | None, ending: Ending | None, now: int, *, starting: bool
) -> Stream:
    if now < stream.changed:
        # The clock was set back: nobody knows how long it has waited.
        stream = replace(stream, changed=now - stream.wait)
    if query is not None:
        steady = stream.state == RUNNING and now - stream.changed >= STEADY
        stream = replace(stream, failures=0, error=None, renewed=False) if steady else stream
        again = stream.query_run not in (None, query.run)
        stream = replace(stream, restarts=stream.restarts + 1) if again else stream
        stream = replace(stream, query=query.id, query_run=query.run, away=False)
        return _into(stream, RUNNING, now)
    if stream.state == STARTING and starting:
        return stream
    if ending is not None and ending.blameless and not stream.renewed:
        anew = replace(stream, failures=0, error=ending.sentence, renewed=True)
        return _into(anew, WAITING if starting else STARTING, now)
    if stream.state in (RUNNING, STARTING):
        elsewhere = "It was stopped elsewhere."
        unstarted = "The run that should start it failed."
        reason = Ending(elsewhere if stream.state == RUNNING else unstarted)
        why = ending or reason
        failures = stream.failures + 1
        failed = replace(stream, failures=failures, error=why.sentence, away=why.away)
        return _into(failed, GIVEN_UP if failed.failures >= TRIES else WAITING, now)
    if stream.state == WAITING and not starting and now - stream.changed >= stream.wait:
        return _into(stream, STARTING, now)
    return stream


def _into(stream: Stream, state: str, now: int) -> Stream:
    return stream if stream.state == state else replace(stream, state=state, changed=now)


def _unanswered(streams: Mapping[str, Stream], error: EngineError) -> dict[str, Ending]:
    """Why streams ended, where the engine does not say it: it is gone, as far as one can see."""
    return {a: Ending(str(error), s.state == RUNNING, away=True) for a, s in streams.items()}


def _endings(
    settings: Settings, streams: Mapping[str, Stream], running: Collection[str]
) -> dict[str, Ending]:
    """Why those streams ended that ran when last looked at, where their queries can say it."""
    found: dict[str, Ending] = {}
    for asset, stream in streams.items():
        if stream.state != RUNNING or asset in running or not (stream.query and stream.query_run):
            continue
        with engine.visit(settings, continuous.session_id(settings, asset)) as spark:
            query = StreamingQuery(spark, stream.query, stream.query_run)  # pyright: ignore[reportArgumentType]
            # Otherwise the engine that ran it is gone.
            with suppress(PySparkException):
                if (failure := query.exception()) is not None:
                    blameless = continuous.outdated(failure) or continuous.crashed(failure)
                    found[asset] = Ending(continuous.why(failure), blameless)
    return found
