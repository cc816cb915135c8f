"""Brokers of tests that stand still, or are reached by a network that fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tidemark.base.settings import Settings
from tidemark_streaming.kafka import broker


@dataclass(frozen=True)
class OwnBroker:
    """A broker that can stand still.

    Args:
        settings: of its home.
        advertised: the port at which clients are told to reach it.
    """

    settings: Settings
    advertised: int

    def start(self) -> None:
        """Start it, also again, and wait until it answers."""
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.advertised}"}
        broker.start(self.settings, properties=told)

    def stand_still(self) -> None:
        """Let it keep its connections, and do nothing."""
        process = self._process()
        process.suspend()
        # On a busy machine its threads go on for a while, long enough to commit a transaction.
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

    def go_on(self) -> None:
        """Let it go on where it stood still."""
        self._process().resume()

    def _process(self) -> psutil.Process:
        record = broker.broker_process(self.settings).running()
        assert record is not None
        return psutil.Process(record.pid)


@contextmanager
def own_broker(home: Path, port: int, advertised: int) -> Iterator[OwnBroker]:
    """A broker at that port, which ends with the block."""
    own = OwnBroker(Settings(home=home, kafka_port=port), advertised)
    own.start()
    try:
        yield own
    finally:
        broker.broker_process(own.settings).stop(deadline=5)
