"""What waits in Kafka: asked in the background, as brokers that don't answer hold nobody up."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from tidemark.base.errors import TidemarkError
from tidemark_streaming.kafka import KafkaFeed

EVERY = 5.0
"""Seconds between two questions to the brokers of a source."""

PATIENCE = 2.0
"""Seconds that they have to answer."""


@dataclass(frozen=True)
class Backlog:
    """What waits in Kafka for a source.

    Args:
        waiting: records, by topic and partition: offsets that the timeline is not through yet.
        trouble: why that is not known: the brokers don't answer, or have no such topic.
    """

    waiting: Mapping[tuple[str, int], int]
    trouble: str | None = None


class Backlogs:
    """Asks the brokers of Kafka's sources."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="brokers")
        self._asked = dict[str, tuple[float, Future[Backlog]]]()
        self._known = dict[str, Backlog]()

    def backlog(self, feed: KafkaFeed, position: str | None) -> Backlog:
        """What waited when the brokers were asked last, some seconds ago at most; the first time
        it is waited for.

        Args:
            position: of the source's newest arrival, as the timeline has it.
        """
        name = feed.source.name
        asked = self._asked.get(name)
        if asked is not None and asked[1].done():
            self._known[name] = asked[1].result()
        if asked is None or (asked[1].done() and time.monotonic() - asked[0] > EVERY):
            asked = (time.monotonic(), self._pool.submit(_ask, feed, position))
            self._asked[name] = asked
        if name not in self._known:
            wait([asked[1]], 2 * PATIENCE)
            if asked[1].done():
                self._known[name] = asked[1].result()
        nothing = Backlog({}, f"Kafka at {feed.servers or 'kafka_servers'} has not answered yet.")
        return self._known.get(name, nothing)


def _ask(feed: KafkaFeed, position: str | None) -> Backlog:
    try:
        return Backlog(feed.waiting(position, PATIENCE))
    except TidemarkError as error:
        return Backlog({}, str(error))
