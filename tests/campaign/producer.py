"""A producer of numbered events that survives restarts of the broker."""

import random
import threading
import time

from helpers.kafka.topics import Topics
from tidemark.base.instants import format_instant

LATE = (0, 0, 0, 1, 4, 8, 30)
"""Possible delays of an event in seconds: some are late, some too late."""

POISON = 0.001
"""The share of undecodable records."""


class Producer:
    """A producer of numbered events to a topic of two partitions.

    Args:
        rate: approximate number of events per second.
        seed: the random seed for late events and poison records.
    """

    def __init__(self, topics: Topics, topic: str, rate: int, seed: int) -> None:
        self.sent = 0
        """The number of events so far; their numbers are smaller."""
        self.poison = 0
        """The number of undecodable records, numbered as well."""
        self._chance = random.Random(seed)
        self._topic, self._rate = topic, rate
        # The client retries until the broker acknowledges, and the broker drops duplicates.
        self._producer = topics.producer(
            enable_idempotence="true",
            message_timeout_ms="0",
            queue_buffering_max_messages="1000000",
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self, patience: float = 300) -> None:
        """Stop sending and wait until all records are acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(patience)
        if left:
            raise TimeoutError(f"The broker did not take {left} events in {patience:.0f} seconds.")

    def _send(self) -> None:
        while not self._stopping.wait(0.1):
            for _ in range(max(self._rate // 10, 1)):
                self._producer.produce(
                    self._topic, self._next(), partition=self._chance.randrange(2)
                )
            self._producer.poll(0)

    def _next(self) -> bytes:
        if self._chance.random() < POISON:
            self.poison += 1
            return f"poison {self.poison - 1}".encode()
        late = self._chance.choice(LATE) * self._chance.random()
        at = format_instant(int((time.time() - late) * 1_000_000))
        self.sent += 1
        return f'{{"at": "{at}", "n": {self.sent - 1}}}'.encode()
