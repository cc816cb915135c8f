"""The lag of Kafka sources, polled in the background: brokers that don't answer delay nothing."""

import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tidemark.base.errors import TidemarkError
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.monitor.answers import Answers

EVERY = 5.0
"""Seconds between two requests to the brokers of a source."""

PATIENCE = 2.0
"""Seconds to wait for their answer."""

KEPT = 20_000
"""Maximum number of answers to keep for each source: those of a day."""


@dataclass(frozen=True)
class Backlog:
    """The records in Kafka that a source has not ingested yet.

    Args:
        waiting: offsets that the timeline does not have yet, by topic and partition.
        trouble: why that is unknown: the brokers don't answer, refuse the client, or don't have
            the topic.
        retriable: true if a retry may succeed, because the brokers don't answer now.
    """

    waiting: Mapping[tuple[str, int], int]
    trouble: str | None = None
    retriable: bool = False

    @property
    def silent(self) -> bool:
        """True if the brokers don't answer."""
        return self.trouble is not None and self.retriable

    @property
    def refused(self) -> bool:
        """True if they answer, but refuse access until the cause is fixed."""
        return self.trouble is not None and not self.retriable


class Backlogs:
    """Polls the brokers of Kafka sources."""

    def __init__(self) -> None:
        self._answers = Answers[Backlog](EVERY)
        self._past = defaultdict[str, deque[tuple[int, int]]](lambda: deque(maxlen=KEPT))

    def backlog(self, connector: KafkaConnector, position: str | None) -> Backlog:
        """Return a backlog that is at most a few seconds old. Wait for the first answer.

        Args:
            position: the position of the source's newest arrival in the timeline.
        """
        found = self._answers.newest(
            connector.source.name, partial(self._ask, connector, position), 2 * PATIENCE
        )
        where = connector.servers or "kafka_servers"
        nothing = Backlog({}, f"Kafka at {where} has not responded yet.", retriable=True)
        return nothing if found is None else found

    def past(self, source: str) -> list[tuple[int, int]]:
        """Return the times of a source's answers, in microseconds, each with its total lag."""
        return list(self._past[source])

    def _ask(self, connector: KafkaConnector, position: str | None) -> Backlog:
        try:
            found = Backlog(connector.waiting(position, PATIENCE))
        except TidemarkError as error:
            return Backlog({}, str(error), retriable=error.retriable)
        total = sum(found.waiting.values())
        self._past[connector.source.name].append((time.time_ns() // 1000, total))
        return found
