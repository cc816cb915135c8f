"""Test brokers that can be suspended or reached through a failing network."""

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
    """A broker that can be suspended.

    Args:
        settings: the settings of its home.
        advertised: the port that it advertises to clients.
    """

    settings: Settings
    advertised: int

    def start(self) -> None:
        """Start or restart it and wait until it responds."""
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.advertised}"}
        broker.start_broker(self.settings, properties=told)

    def stand_still(self) -> None:
        """Suspend the process, with its connections open."""
        process = self._process()
        process.suspend()
        # On a busy machine its threads may run long enough to commit a transaction.
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

    def go_on(self) -> None:
        """Resume the process."""
        self._process().resume()

    def _process(self) -> psutil.Process:
        record = broker.broker_process(self.settings).find_running()
        assert record is not None
        return psutil.Process(record.pid)


@contextmanager
def own_broker(home: Path, port: int, advertised: int) -> Iterator[OwnBroker]:
    """Run a broker on that port for the duration of the block."""
    own = OwnBroker(Settings(home=home, kafka_port=port), advertised)
    own.start()
    try:
        yield own
    finally:
        broker.broker_process(own.settings).stop(deadline=5)
