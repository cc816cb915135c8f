"""Polls of other systems in the background: the lag of Kafka sources, and the progress of sinks.

The progress of a sink is read from the sink's topics and from the asset's table. No poll needs the
engine, and brokers that don't answer delay nothing.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.sink.writer import sink_status, topic_of

EVERY = 5.0
"""Seconds between two requests to the same system."""

BROKER_SECONDS = 2.0
"""Seconds to wait for the answer of brokers."""

_T = TypeVar("_T")
_THREADS = 4
_REQUESTS = 2
"""How often longer than one request the first answer of a sink may take, which takes several."""


class Answers(Generic[_T]):
    """Keeps the newest answer to each question.

    `newest` asks a question again, in the background, if it was last asked more than `EVERY`
    seconds ago.

    Args:
        interval_seconds: the seconds after which a question is asked again; `EVERY` by default.
    """

    def __init__(self, interval_seconds: float | None = None) -> None:
        self._every = interval_seconds
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ask")
        self._asked = dict[str, tuple[float, Future[_T]]]()
        self._known = dict[str, _T]()

    def get_newest(self, name: str, ask: Callable[[], _T], wait_seconds: float = 0.0) -> _T | None:
        """Return the newest answer to a question, or None before the first answer.

        Raise the error if the newest attempt failed.

        Args:
            name: identifies the question.
            wait_seconds: seconds to wait for the first answer.
        """
        self._take_answer(name)
        every = EVERY if self._every is None else self._every
        request = self._asked.get(name)
        if request is None or (request[1].done() and time.monotonic() - request[0] > every):
            request = (time.monotonic(), self._pool.submit(ask))
            self._asked[name] = request
        if name not in self._known and wait_seconds:
            wait([request[1]], wait_seconds)
            self._take_answer(name)
        return self._known.get(name)

    def _take_answer(self, name: str) -> None:
        request = self._asked.get(name)
        if request is None or not request[1].done():
            return
        try:
            self._known[name] = request[1].result()
        except BaseException:
            # The error is not kept, so the next call asks again.
            del self._asked[name]
            raise


_KEPT = 20_000
"""Maximum number of answers to keep for each source: the answers of about a day."""


@dataclass(frozen=True)
class Backlog:
    """The records in Kafka that a source has not ingested yet.

    Args:
        waiting: the number of offsets that the timeline does not have yet, by topic and partition.
        trouble: why `waiting` is unknown: the brokers don't answer, refuse the client, or don't
            have the topic. None if `waiting` is known.
        retriable: true if a retry may succeed, because the brokers don't answer now.
    """

    waiting: Mapping[tuple[str, int], int]
    trouble: str | None = None
    retriable: bool = False

    @property
    def is_silent(self) -> bool:
        """True if the brokers don't answer."""
        return self.trouble is not None and self.retriable

    @property
    def is_refused(self) -> bool:
        """True if the brokers answer, but refuse access until the cause is fixed."""
        return self.trouble is not None and not self.retriable


class Backlogs:
    """Polls the brokers of Kafka sources."""

    def __init__(self) -> None:
        self._answers = Answers[Backlog]()
        self._past = defaultdict[str, deque[tuple[int, int]]](lambda: deque(maxlen=_KEPT))

    def get_backlog(self, connector: KafkaConnector, position: str | None) -> Backlog:
        """Return the backlog of a source, from the newest answer of the brokers.

        The call waits for the brokers only if they have not answered yet. Otherwise, it returns
        the known answer and, if that is more than a few seconds old, requests a new one for later
        calls.

        Args:
            position: the position of the source's newest arrival in the timeline.
        """
        newest_backlog = self._answers.get_newest(
            connector.source.name,
            partial(self._ask_brokers, connector, position),
            2 * BROKER_SECONDS,
        )
        where = connector.servers or "kafka_servers"
        nothing = Backlog({}, f"Kafka at {where} has not responded yet.", retriable=True)
        return nothing if newest_backlog is None else newest_backlog

    def list_past_lags(self, source: str) -> list[tuple[int, int]]:
        """Return the total lag of a source at each poll: pairs of an instant, in microseconds, and
        the lag at that instant."""
        return list(self._past[source])

    def _ask_brokers(self, connector: KafkaConnector, position: str | None) -> Backlog:
        try:
            backlog = Backlog(connector.measure_lag(position, BROKER_SECONDS).waiting)
        except TidemarkError as error:
            return Backlog({}, str(error), retriable=error.retriable)
        total = sum(backlog.waiting.values())
        self._past[connector.source.name].append((time.time_ns() // 1000, total))
        return backlog


@dataclass(frozen=True)
class SinkOverview:
    """The progress of an asset's sink.

    Args:
        behind: the number of versions of the table that the topic lacks; None if it is unknown.
        since: the commit time of the first missing version that the transaction log still has, in
            microseconds; None if there is none.
        trouble: why the progress is unknown; None if it is known.
    """

    asset: str
    topic: str
    behind: int | None = None
    since: int | None = None
    trouble: str | None = None

    def seconds_behind(self, time_micros: int) -> float | None:
        """Return the seconds since the first missing version was committed.

        Return 0 if the topic lacks no version, and None if the progress is unknown.
        """
        if self.behind is None:
            return None
        if self.behind and self.since is not None:
            return max(0, time_micros - self.since) / 1e6
        return 0.0


class Sinks:
    """Polls the progress of sinks.

    Args:
        assets: all assets; only assets with a sink are polled.
        wait_seconds: seconds to wait for the first answer of the brokers; they must also answer
            each request within this time. If it is zero, sinks without an answer yet are left out.
    """

    def __init__(
        self, settings: Settings, assets: Iterable[Definition], wait_seconds: float = 0.0
    ) -> None:
        self._settings = settings
        self._wait_seconds = wait_seconds
        self._assets = [asset for asset in assets if asset.sink is not None]
        self._sinks = Answers[SinkOverview]()

    def list_overviews(self) -> tuple[SinkOverview, ...]:
        """Return the newest known progress of each sink; a sink without an answer is left out."""
        timeout_seconds = self._wait_seconds or None
        questions = dict[str, Callable[[], SinkOverview]]()
        for asset in self._assets:
            questions[asset.name] = partial(_ask_sink, self._settings, asset, timeout_seconds)
        for name, question in questions.items():
            # All sinks are asked before the first answer is waited for.
            self._sinks.get_newest(name, question)
        overviews = list[SinkOverview]()
        for name, question in questions.items():
            answer = self._sinks.get_newest(name, question, _REQUESTS * self._wait_seconds)
            if answer is not None:
                overviews.append(answer)
        return tuple(overviews)


def _ask_sink(settings: Settings, asset: Definition, timeout_seconds: float | None) -> SinkOverview:
    no_spark = cast(SparkSession, None)
    topic = topic_of(asset).name
    tables = Warehouse(no_spark, settings.warehouse, settings.database, registered=False)
    try:
        status = sink_status(tables, asset, timeout_seconds)
    except (TidemarkError, DeltaError, OSError) as error:
        return SinkOverview(asset.name, topic, trouble=str(error))
    return SinkOverview(asset.name, topic, status.behind, status.since)
