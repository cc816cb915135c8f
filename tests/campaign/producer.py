"""Who sends numbered events, whatever becomes of the broker."""

import random
import threading
import time

from helpers.kafka.topics import Topics
from tidemark.base.instants import iso

LATE = (0, 0, 0, 1, 4, 8, 30)
"""Seconds by which an event may be behind: some are late, some are too late."""

POISON = 0.001
"""Which share of the records is a text that is no event."""


class Producer:
    """Sends numbered events to a topic of two partitions.

    Args:
        rate: events a second, about.
        seed: of what is late, and what is poison.
    """

    def __init__(self, topics: Topics, topic: str, rate: int, seed: int) -> None:
        self.sent = 0
        """Events so far: their numbers are below that."""
        self.poison = 0
        """Records that are no event, numbered as well."""
        self._chance = random.Random(seed)
        self._topic, self._rate = topic, rate
        # Sent again until it is acknowledged; the broker knows what it has already.
        self._producer = topics.producer(
            enable_idempotence="true",
            message_timeout_ms="0",
            queue_buffering_max_messages="1000000",
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self, patience: float = 120) -> None:
        """Send no more, and wait until all are acknowledged."""
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
        at = iso(int((time.time() - late) * 1_000_000))
        self.sent += 1
        return f'{{"at": "{at}", "n": {self.sent - 1}}}'.encode()
