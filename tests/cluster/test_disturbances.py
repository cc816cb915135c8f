"""Clients are killed, and the object store and an engine fail, while two machines work.

After each fault, the results of all runs equal a batch computation.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster.machine import Machine, RunningCommand
from helpers.cluster.market import Site
from helpers.processes.object_store import ObjectStore

# Starts two engines, and waits for a minute while the store is paused.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(3600)]

ASSET = "orders_hourly"
RUN_STEPS = ("state", "published", "ledger")
INGEST_STEPS = ("log", "timeline")
PAUSE_SECONDS = 60
"""How long the store is paused."""


class Orders:
    """A site with orders: each file has the next two hours."""

    def __init__(self, machines: list[Machine]) -> None:
        self.site = Site(machines)
        self.first, self.second = machines
        self._hour = 0

    def land(self) -> None:
        """Write the next file."""
        self.site.land_orders(f"{self._hour:02}.csv", self._hour, self._hour + 2)
        self._hour += 2

    def check(self) -> None:
        """Process the rest on both machines, and compare the results with a batch computation."""
        self.site.run("ingest", "orders")
        self.site.run("run", ASSET)
        assert "equal" in self.site.run("parity", ASSET)
        self.site.run("fsck")


@pytest.fixture(scope="module")
def orders(machines: list[Machine]) -> Orders:
    orders = Orders(machines)
    orders.land()
    orders.check()
    return orders


@pytest.fixture
def stream(orders: Orders) -> Iterator[RunningCommand]:
    """Yield a stream of the asset on the second machine, after its first results."""
    orders.land()
    orders.first.run("ingest", "orders")
    with orders.second.start("stream", ASSET) as stream:
        stream.await_line("arrivals")
        orders.first.await_current(ASSET)
        yield stream
        stream.process.send_signal(signal.SIGTERM)
        assert stream.end() in {0, 130, 143}, stream.output


@pytest.mark.parametrize("step", INGEST_STEPS)
def test_one_of_two_ingests_is_killed(step: str, orders: Orders, tmp_path: Path) -> None:
    orders.land()
    codes = run_both(orders, tmp_path, step, "ingest", "orders")
    # The other one may have been refused, because the source was being ingested.
    assert codes in ([-signal.SIGKILL, 0], [-signal.SIGKILL, 2])
    orders.check()


@pytest.mark.parametrize("step", RUN_STEPS)
def test_one_of_two_runs_is_killed(step: str, orders: Orders, tmp_path: Path) -> None:
    orders.land()
    orders.first.run("ingest", "orders")
    assert run_both(orders, tmp_path, step, "run", ASSET) == [-signal.SIGKILL, 0]
    orders.check()


def run_both(orders: Orders, folder: Path, step: str, *command: str) -> list[int]:
    """Run a command on both machines at once. The first one that reaches the step is killed.

    Returns:
        The sorted exit codes.
    """
    fail_point = folder / "fail_point"
    fail_point.write_text(step)
    with (
        orders.first.start(*command, fail_at=str(fail_point)) as one,
        orders.second.start(*command, fail_at=str(fail_point)) as other,
    ):
        codes = sorted([one.end(), other.end()])
    output = one.output + other.output
    assert "Traceback" not in output, output
    assert not fail_point.exists(), output
    return codes


def test_a_run_waits_for_a_paused_store_or_ends_with_one_message(
    orders: Orders, store: ObjectStore
) -> None:
    orders.land()
    orders.first.run("ingest", "orders")
    with orders.first.start("run", ASSET) as run:
        run.await_line("engine")
        store.pause()
        time.sleep(PAUSE_SECONDS)
        store.resume()
        assert run.end() in {0, 3}, run.output
    assert "Traceback" not in run.output
    orders.check()


def test_a_stream_continues_after_the_store_was_paused(
    orders: Orders, stream: RunningCommand, store: ObjectStore
) -> None:
    orders.land()
    orders.first.run("ingest", "orders")
    store.pause()
    time.sleep(PAUSE_SECONDS)
    store.resume()
    orders.first.await_current(ASSET)
    assert stream.process.poll() is None, stream.output
    orders.check()


def test_a_stream_continues_after_its_engine_was_killed(
    orders: Orders, stream: RunningCommand
) -> None:
    orders.second.kill_engine()
    stream.await_line("Waiting until it is back")
    orders.land()
    orders.first.run("ingest", "orders")
    # The stream has started its engine again.
    stream.await_line("The outage ended")
    orders.first.await_current(ASSET)
    orders.check()
