"""What waits in Kafka: asked in the background, as brokers that don't answer hold nobody up."""

import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tidemark.base.errors import TidemarkError
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.watch.answers import Answers

EVERY = 5.0
"""Seconds between two questions to the brokers of a source."""

PATIENCE = 2.0
"""Seconds that they have to answer."""

KEPT = 20_000
"""Answers that are kept of a source: those of a day."""


@dataclass(frozen=True)
class Backlog:
    """What waits in Kafka for a source.

    Args:
        waiting: records, by topic and partition: offsets that the timeline is not through yet.
        trouble: why that is not known: the brokers don't answer, refuse the client, or have no such
            topic.
        retriable: whether the trouble may pass by itself: they don't answer just now.
    """

    waiting: Mapping[tuple[str, int], int]
    trouble: str | None = None
    retriable: bool = False

    @property
    def silent(self) -> bool:
        """Whether the brokers don't answer."""
        return self.trouble is not None and self.retriable

    @property
    def refused(self) -> bool:
        """Whether they answer, and what waits can't be told until somebody mends it."""
        return self.trouble is not None and not self.retriable


class Backlogs:
    """Asks the brokers of Kafka's sources."""

    def __init__(self) -> None:
        self._answers = Answers[Backlog](EVERY)
        self._past = defaultdict[str, deque[tuple[int, int]]](lambda: deque(maxlen=KEPT))

    def backlog(self, feed: KafkaConnector, position: str | None) -> Backlog:
        """What waited when the brokers were asked last, some seconds ago at most; the first time
        it is waited for.

        Args:
            position: of the source's newest arrival, as the timeline has it.
        """
        found = self._answers.newest(
            feed.source.name, partial(self._ask, feed, position), 2 * PATIENCE
        )
        where = feed.servers or "kafka_servers"
        nothing = Backlog({}, f"Kafka at {where} has not responded yet.", retriable=True)
        return nothing if found is None else found

    def past(self, source: str) -> list[tuple[int, int]]:
        """When the brokers of a source answered, in microseconds, and how many records waited
        then, in all."""
        return list(self._past[source])

    def _ask(self, feed: KafkaConnector, position: str | None) -> Backlog:
        try:
            found = Backlog(feed.waiting(position, PATIENCE))
        except TidemarkError as error:
            return Backlog({}, str(error), retriable=error.retriable)
        total = sum(found.waiting.values())
        self._past[feed.source.name].append((time.time_ns() // 1000, total))
        return found
