"""Test masked columns and erasure on a source that all parts of Tidemark have processed.

No file contains a protected value, the search works in each kind of file, and no table contains
an erased person.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helpers.dagster.steps import OnTestSession
from helpers.dagster.ticks import QUIET
from helpers.data.searched import found
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from helpers.processes.commands import call, surround
from private.connectors import TOPIC
from private.sources import orders
from private.transforms import PANES, orders_hourly
from tidemark.base.errors import ConflictError
from tidemark.base.settings import Settings
from tidemark.define.protection import Tokenize
from tidemark.define.transform import WindowedTransform
from tidemark.run.change import replay
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.definitions import build_definitions
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink import SinkWriter
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.starter.choices import Choices
from tidemark_streaming.starter.write import write_project
from tidemark_streaming.streams import continuous

# Streams, a broker and Dagster on one source.
pytestmark = pytest.mark.slow

MARK, SSN = "rawvalue", 4242424242
PLAIN = "plainvalue"
"""A mark in unprotected values."""

SHOWN = ("", "_late", "_late_loss", "_panes", "_quarantine")
"""The suffixes of the readable tables of an asset."""

PATIENCE = 120.0


@pytest.fixture(scope="module")
def settings(
    engine: Settings, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Yield settings with a new database and the starter's marts, also set in the environment."""
    folder = tmp_path_factory.mktemp("private")
    project = write_project(Choices("shop"), folder)
    made = engine.model_copy(
        update={
            "database": f"test_{uuid4().hex[:12]}",
            "landing": str(folder / "landing"),
            "marts": project / "dbt_project",
            "domains": ("private",),
            "kafka_servers": topics.servers,
            "log_format": "json",
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        surround(patch, made)
        for name in ("marts", "kafka_servers", "log_format"):
            patch.setenv(f"TIDEMARK_{name.upper()}", str(getattr(made, name)))
        patch.setenv("TIDEMARK_DOMAINS", "private")
        patch.setenv("TIDEMARK_TOKENIZATION_KEY", "0123456789abcdef0123456789abcdef")
        yield made


def order(n: int) -> bytes:
    """Return the n-th order: every half minute from nine o'clock, by one of five people.

    The asset quarantines the windows of one of them for the amount.
    """
    at = datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(seconds=30 * n)
    return json.dumps(
        {
            "ordered_at": at.isoformat(),
            "city": f"{PLAIN} {'york' if n % 2 else 'leeds'}",
            "amount": 1000 if n % 5 == 0 else n % 5,
            "email": f"{n % 5}-{MARK}@example.com",
            "card": f"{MARK}-4111-{n:04}",
            "ssn": SSN,
            "other": MARK,
        }
    ).encode()


UNDECODABLE = [f"not JSON {MARK}".encode(), f'{{"email": "{MARK}"'.encode(), f'["{MARK}"]'.encode()]


def send(topics: Topics, values: list[bytes]) -> None:
    headers = {"trace": f"{PLAIN}-trace".encode(), "user": f"{MARK}-user".encode()}
    topics.send(TOPIC, values, headers=headers, key=f"{MARK}-key".encode())


@contextmanager
def following(log: Path) -> Iterator[None]:
    """Run an ingest until the block ends, then stop it and wait for a clean exit."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("tidemark"), "ingest", "orders", "--follow"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=file,
            stderr=file,
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def await_events(settings: Settings, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while sum(a.rows for a in Snapshot(settings).read_timeline("orders")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def materialize(settings: Settings, spark: SparkSession, folder: Path) -> None:
    """Materialize a day of windows in Dagster."""
    definitions = build_definitions(
        ["private"], {"tidemark": OnTestSession(settings, spark, registered=True)}
    )
    with dg.DagsterInstance.local_temp(str(folder), QUIET) as instance:
        done = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[dg.AssetKey("orders_hourly")],
            instance=instance,
            partition_key="2026-01-01",
        )
    assert done.success


@dataclass(frozen=True)
class Played:
    """The tables that the tests search, and a folder with logs and Dagster's records."""

    settings: Settings
    warehouse: Warehouse
    asset: WindowedTransform
    folder: Path

    @property
    def tables(self) -> Path:
        return Path(self.warehouse.path_of(""))

    @property
    def marts(self) -> Path:
        return self.tables.with_name(f"{self.warehouse.database}_marts")

    @property
    def places(self) -> list[Path]:
        """All folders to search: the home without other tests' tables, and this test's folders."""
        warehouses = Path(self.settings.warehouse)
        home = [path for path in self.settings.home.iterdir() if path != warehouses]
        return [*home, self.tables, self.marts, self.folder]

    def holding(self, condition: str) -> list[str]:
        """Return the asset's tables with key columns that have rows with this condition."""
        named = [name for name in self.asset.own_tables if self.warehouse.has_table(name)]
        return [
            name
            for name in named
            if "email" in self.warehouse.read_schema(name).names
            and self.warehouse.read_frame(name).where(condition).limit(1).count()
        ]

    def found(self, *marks: str | int) -> list[str]:
        return [path for place in self.places for path in found(place, *marks)]


@pytest.fixture(scope="module")
def played(
    settings: Settings,
    spark: SparkSession,
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    folder = tmp_path_factory.mktemp("beside")
    topics.create(name=TOPIC)
    logs, dagster = folder / "logs", folder / "dagster"
    logs.mkdir()
    dagster.mkdir()
    send(topics, [*UNDECODABLE, *(order(n) for n in range(300))])
    with following(logs / "ingest.log"):
        await_events(settings, 300)
        send(topics, [order(n) for n in range(300, 500)])
        await_events(settings, 500)
        # A late event that is counted, and a too-late event.
        send(topics, [order(360), order(0)])
        await_events(settings, 502)
    warehouse = Warehouse(spark, settings.warehouse, settings.database)
    # The stream's worker does not have the settings of this test.
    asset = replace(orders_hourly, sink=KafkaSink(PANES, topics.servers))
    assert continuous.start_query(warehouse, asset, available_now=True).awaitTermination(
        int(PATIENCE)
    )
    bring_out(warehouse, asset)
    for name, *arguments in (
        ("prepared", "tap", "orders_hourly", "--step", "prepared", "--json"),
        ("quarantined", "tap", "orders_hourly", "--step", "quarantined", "--json"),
        ("trace", "trace", f"{PLAIN}-trace"),
    ):
        shown = call(*arguments)
        assert shown.exit_code == 0, shown.stderr
        (logs / f"{name}.log").write_text(shown.stdout)
    materialize(settings, spark, dagster)
    built = call("dbt", "build")
    assert built.exit_code == 0, built.stderr
    return Played(settings, warehouse, asset, folder)


def bring_out(warehouse: Warehouse, asset: WindowedTransform) -> None:
    """Publish the asset. Retry while the worker of the ended stream still holds the sink."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            SinkWriter(warehouse, asset).publish_changes()
        except ConflictError:
            assert time.monotonic() < deadline
            time.sleep(1)
        else:
            return


def test_no_file_contains_a_protected_value(played: Played, topics: Topics) -> None:
    assert played.found(MARK, SSN) == []
    panes = topics.files(PANES)
    assert found(panes, MARK, SSN) == []
    assert found(topics.files(f"{PANES}_positions"), MARK, SSN) == []

    holding = played.holding("true")
    assert {"orders_hourly_late", "orders_hourly_quarantine", "orders_hourly_panes"} <= {*holding}
    # The search finds unprotected values.
    assert found(topics.files(TOPIC), MARK)
    assert found(panes, PLAIN)
    assert found(played.tables / "_checkpoints" / "orders_hourly", "reservoirVersion")
    there, logs = played.found(PLAIN), ("ingest", "prepared", "quarantined", "trace")
    for where in (
        *(played.folder / "logs" / f"{name}.log" for name in logs),
        *(played.tables / name for name in (orders.log_table, orders.dead_letters_table, "checks")),
        *(played.tables / name for name in holding),
        played.marts / "orders_daily",
        played.folder / "dagster",
    ):
        assert any(path.startswith(str(where)) for path in there), where


def test_erased_people_are_in_no_table(played: Played, topics: Topics) -> None:
    """One person has published orders, the other quarantined, late and too-late ones."""
    token = Tokenize().create_change()
    tokens = [token(f"{n}-{MARK}@example.com".encode()) for n in range(5)]
    published, withheld = (told.decode() for told in tokens[1::-1] if told is not None)
    warehouse, name = played.warehouse, played.asset.name
    theirs = f"email in ('{published}', '{withheld}')"
    replay.replay_to_side_tables(warehouse, played.asset, 0, "tried")
    assert {t.removeprefix(name) for t in played.holding(theirs)} >= {*SHOWN, "_state"}
    for table in (orders.log_table, f"{name}__tried"):
        assert found(played.tables / table, published), table
    log = warehouse.read_frame(orders.log_table)
    hours = log.where(theirs).select(F.date_trunc("hour", "ordered_at"), "city", "email")
    windows = hours.distinct().count()
    assert orders_of_marts(played) == orders_of_windows(played)
    # This mart has no model, as after its deletion.
    shutil.copytree(played.marts / "orders_daily", played.marts / "orders_weekly")

    done = call("erase", "orders", "--where", theirs, "--yes", "--vacuum", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["marts"] == ["orders_daily"]
    assert f"{name}__tried" in told["erased"]["removed"]
    assert not warehouse.has_table(f"{name}__tried")
    (sent,) = told["erased"]["sent"]
    assert (sent["asset"], sent["total"], len(sent["windows"])) == (name, windows, windows)
    assert {w["keys"]["email"] for w in sent["windows"]} == {published, withheld}
    (sentence,) = (each for each in told["beyond"] if PANES in each)
    assert f"has records of {windows} windows of '{name}'" in sentence
    assert any(each.startswith(f"The records in the topics {TOPIC}") for each in told["beyond"])
    assert any("No dbt model creates orders_weekly in '" in each for each in told["beyond"])
    for place in (played.tables, played.marts):
        assert found(place, published, withheld) == []
    assert orders_of_marts(played) == orders_of_windows(played) > 0
    assert check_parity(warehouse, played.asset).is_equal
    # The topic still has the sent records until the sink retracts them.
    assert found(topics.files(PANES), published)
    SinkWriter(warehouse, played.asset).publish_changes()
    table = Table("retracting")
    for record in records(topics.servers, PANES):
        table.take(*record)
    there = {row["email"] for row in warehouse.load_rows(name).to_pylist()}
    assert {email for *_, email in table.rows} == there
    assert len(there) == 3


def orders_of_marts(played: Played) -> int:
    """Return the number of orders in the mart."""
    marts = Warehouse(played.warehouse.spark, played.warehouse.location, played.marts.name)
    return sum(marts.load_rows("orders_daily")["counted"].to_pylist())


def orders_of_windows(played: Played) -> int:
    return sum(played.warehouse.load_rows(played.asset.name)["events"].to_pylist())
