"""Two machines with their own engines do every kind of work on one warehouse in an object store.

Their commands take turns. The same work on one machine with a disk has the same results.
"""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from helpers.cluster.machine import Machine, create_machine
from helpers.cluster.market import ASSETS, DERIVED, Site, do_all_work, send_clicks
from helpers.kafka.topics import Topics

# Starts three engines, and runs a hundred commands.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(5400)]

TABLES = (
    *ASSETS,
    *(f"{asset}_late_loss" for asset in ASSETS),
    *(f"{asset}_quarantine" for asset in ASSETS),
    *(f"{source}_log" for source in DERIVED),
)
"""The tables with the results of runs."""

MART = ("orders_by_day", "tidemark_marts")
"""The mart and its database."""


@pytest.fixture(scope="module")
def topic(topics: Topics) -> Iterator[str]:
    name = topics.create(1, f"clicks_{uuid4().hex[:8]}")
    send_clicks(topics, name, 8, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKET_TOPIC", name)
        patch.setenv("MARKET_SERVERS", topics.servers)
        yield name


@pytest.fixture(scope="module")
def shared(machines: list[Machine], topic: str) -> list[Machine]:
    """Return the two machines after all work."""
    do_all_work(Site(machines))
    return machines


@pytest.fixture(scope="module")
def single(
    topic: str, shared: list[Machine], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """Yield a machine with a disk after the same work."""
    folder = tmp_path_factory.mktemp("single")
    machine = create_machine(
        folder / "machine",
        TIDEMARK_WAREHOUSE=str(folder / "warehouse"),
        TIDEMARK_LANDING=str(folder / "landing"),
    )
    do_all_work(Site([machine]))
    yield machine
    machine.call("down")


def test_all_tables_are_equal_row_by_row(shared: list[Machine], single: Machine) -> None:
    for table in TABLES:
        assert shared[0].rows(table) == single.rows(table), table
    assert all(single.rows(table) for table in ASSETS)
    # The window with an impossible amount was in quarantine, and was released.
    highest = [json.loads(row)["highest"] for row in single.rows("orders_hourly")]
    assert max(highest) == 20_000
    assert shared[0].rows(*MART) == single.rows(*MART) != []


@pytest.mark.parametrize("name", [*ASSETS, *DERIVED])
def test_parity_is_equal_on_both_machines(name: str, shared: list[Machine]) -> None:
    for machine in shared:
        assert "equal" in machine.run("parity", name)


def test_the_warehouse_is_consistent(shared: list[Machine]) -> None:
    for machine in shared:
        machine.run("fsck")
