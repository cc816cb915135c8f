"""Brokers of tests that are killed, or reached by a network that fails: each has its own home."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tidemark.base.settings import Settings
from tidemark_streaming.kafka import broker


@dataclass(frozen=True)
class OwnBroker:
    """A broker that can be killed.

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

    def kill(self) -> None:
        """End it without a farewell, and wait until it is gone."""
        record = broker.process(self.settings).running()
        assert record is not None
        process = psutil.Process(record.pid)
        os.kill(record.pid, signal.SIGKILL)
        psutil.wait_procs([process], timeout=10)


@contextmanager
def own_broker(home: Path, port: int, advertised: int) -> Iterator[OwnBroker]:
    """A broker at that port, which ends with the block."""
    own = OwnBroker(Settings(home=home, kafka_port=port), advertised)
    own.start()
    try:
        yield own
    finally:
        broker.process(own.settings).stop()
