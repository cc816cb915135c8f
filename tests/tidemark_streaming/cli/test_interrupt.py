"""Commands end when they are told to, and not amid a request to the engine."""

import signal
import traceback
from collections.abc import Iterator

import pytest

from tidemark.store.warehouse import Warehouse
from tidemark_streaming.cli.interrupt import until_terminated


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What signals do is afterwards as it was."""
    numbers = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    until_terminated()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
def test_a_request_is_not_interrupted(warehouse: Warehouse) -> None:
    spark, asked = warehouse.spark, 0
    for milliseconds in range(2, 10):
        signal.setitimer(signal.ITIMER_REAL, milliseconds / 1000)
        try:
            while True:
                assert spark.range(3).count() == 3
                asked += 1
        except KeyboardInterrupt as interrupt:
            frames = traceback.walk_tb(interrupt.__traceback__)
            where = [frame.f_globals["__name__"] for frame, _ in frames]
            assert not [name for name in where if name.startswith("grpc.")], where
    assert asked
