"""Records of streams, supervisors and ingests are seen from another home of the same warehouse."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.data.support import READINGS
from helpers.data.warehouses import warehouse_without_engine
from tidemark.base.errors import ConflictError, DataError
from tidemark.base.settings import Settings
from tidemark.run.admission import Admission
from tidemark.store.workers import record_store
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST
from tidemark_streaming.ingest.ingest_record import (
    blocking_error,
    is_ingesting,
    is_polled,
    lock_ingest,
    record_error,
    record_poll,
)
from tidemark_streaming.streams import desired_streams, supervisor
from tidemark_streaming.streams.stream_states import read_streams
from tidemark_streaming.streams.supervisor import RUNNING, Stream

SOURCE = replace(READINGS, name="orders")


@pytest.fixture(params=["disk", "store"])
def homes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Settings, Settings]:
    """Return the settings of two homes with one warehouse, whose caches are separate."""
    # Each home lists the records again, as processes of two machines do.
    monkeypatch.setattr(record_store, "_LISTING_SECONDS", 0.0)
    warehouse = str(tmp_path / "warehouse")
    if request.param == "store":
        warehouse = f"{request.getfixturevalue('bucket')}/{uuid4().hex}"
    # The second address is the same, but not equal: each home has its own records in memory.
    first = Settings(home=tmp_path / "one", warehouse=warehouse)
    second = Settings(home=tmp_path / "two", warehouse=f"{warehouse}/")
    return first, second


def test_a_stream_that_one_home_requests_is_supervised_from_another(
    homes: tuple[Settings, Settings],
) -> None:
    requesting, supervising = homes
    request = desired_streams.request_stream(requesting, "revenue", Admission(arrivals=5))
    assert desired_streams.read_all(supervising) == {"revenue": request}

    desired_streams.record_start(supervising, request, "query", "run")
    start = desired_streams.find_start(requesting, "revenue")
    assert start is not None
    assert (start.since, start.query, start.run) == (request.since, "query", "run")

    desired_streams.renew_lease(supervising, "shop", "supervisor of two", 60)
    with pytest.raises(ConflictError, match="supervisor of two"):
        desired_streams.renew_lease(requesting, "shop", "supervisor of one", 60)
    now = time.time_ns() // 1000
    found = {"revenue": Stream(request.since, RUNNING, now)}
    supervisor.write_statuses(supervising, "shop", found, now)
    states = read_streams(requesting, (), engine=True)
    assert {asset: state.state for asset, state in states.items()} == {"revenue": RUNNING}

    assert desired_streams.cancel_request(requesting, "revenue")
    assert desired_streams.read_all(supervising) == {}


def test_an_ingest_and_its_error_are_seen_from_another_home(
    homes: tuple[Settings, Settings],
) -> None:
    ingesting, watching = homes
    warehouse = warehouse_without_engine(ingesting)
    other = warehouse_without_engine(watching)
    with (
        suppress(DataError),
        foreground.record_running(ingesting, INGEST, "orders", ("revenue",)),
        lock_ingest(warehouse, SOURCE) as held,
        record_error(held),
    ):
        assert is_ingesting(watching, "orders")
        (command,) = foreground.list_commands(watching)
        assert (command.runs, command.assets) == (True, ("revenue",))
        with pytest.raises(ConflictError, match="is being ingested already"):
            lock_ingest(other, SOURCE).__enter__()
        raise DataError("Records are gone.")
    assert not is_ingesting(watching, "orders")
    assert blocking_error(watching, "orders") == "Records are gone."
    (command,) = foreground.list_commands(watching)
    assert (command.runs, command.error) == (False, "Records are gone.")

    with lock_ingest(other, SOURCE) as held, record_error(held):
        assert blocking_error(ingesting, "orders") is None


def test_a_sensor_that_polls_is_seen_from_another_home(homes: tuple[Settings, Settings]) -> None:
    polling, watching = homes
    assert not is_polled(watching, "orders")
    record_poll(polling, "orders")
    assert is_polled(watching, "orders")
