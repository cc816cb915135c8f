"""An erasure on one machine, during a run, an ingest or another erasure on another machine.

Each machine has its own name and home. A command is paused at one of its steps until the command of
the other machine has ended. In the end, no table has a row of the erased person.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.processes.commands import call, surround
from helpers.processes.machines import (
    PAUSED_COMMAND,
    PER_MINUTE,
    READINGS,
    await_pause,
    land_reading,
    machine,
    readings_domain,
)
from helpers.suite.nightly import NIGHTLY
from tidemark.base.settings import Settings
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse

# Each case starts three commands, and some wait for a lease.
pytestmark = NIGHTLY

ERASE = ("erase", READINGS, "--where", "sensor = 'ann'", "--yes")
_SECONDS = 180


@pytest.fixture
def shared(engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Yield the settings of a home whose engine and warehouse the machines use."""
    update = {"database": f"erased_{uuid4().hex[:12]}", "landing": str(tmp_path / "landing")}
    surround(monkeypatch, engine.model_copy(update=update))
    (tmp_path / "landing").mkdir()
    with readings_domain(tmp_path):
        yield Settings()


class Machines:
    """Runs commands on two machines.

    Args:
        folder: the folder of their homes.
    """

    def __init__(self, shared: Settings, folder: Path) -> None:
        self.shared = shared
        self._folder = folder

    def interrupt(
        self, command: tuple[str, ...], point: str, other: tuple[str, ...]
    ) -> tuple["Ended", "Ended"]:
        """Run a command, and another one on another machine while it is paused.

        Args:
            point: the fail point at which the command is paused.

        Returns:
            The results of the two commands.
        """
        file = self._folder / "point"
        file.write_text(point)
        variables = {"TIDEMARK_FAIL_AT": str(file)}
        with machine(
            self.shared,
            self._folder,
            "one",
            *command,
            program=PAUSED_COMMAND,
            variables=variables,
        ) as paused:
            await_pause(paused)
            with machine(self.shared, self._folder, "two", *other) as process:
                second = Ended(process)
            paused.send_signal(signal.SIGCONT)
            return Ended(paused), second

    def tables_of_ann(self) -> list[str]:
        """Return the tables that contain a text about the erased person."""
        no_engine = cast("SparkSession", None)
        warehouse = Warehouse(
            no_engine, self.shared.warehouse, self.shared.database, registered=False
        )
        tables = own_tables(warehouse)
        return [str(table) for table in tables if "ann" in str(warehouse.load_rows(table))]

    def check_settled(self) -> None:
        """Check that the asset equals the event log, and that no table is damaged."""
        assert self.tables_of_ann() == []
        # Its watermark closes the windows of all other readings.
        land_reading(self.shared, 9, "bob")
        ingest()
        for command in (("run", PER_MINUTE), ("parity", PER_MINUTE), ("fsck",)):
            ended = call(*command)
            assert ended.exit_code == 0, ended.stdout + ended.stderr
        assert self.tables_of_ann() == []


class Ended:
    """The result of a command.

    Args:
        process: the command, for whose end this waits.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        _, self.messages = process.communicate(timeout=_SECONDS)
        self.code = process.returncode


@pytest.fixture
def machines(shared: Settings, tmp_path: Path) -> Machines:
    land_reading(shared, 0, "ann", "bob")
    ingest()
    return Machines(shared, tmp_path)


def ingest() -> None:
    """Ingest the landed files, of which there must be some."""
    ingested = call("ingest", READINGS)
    assert ingested.exit_code == 0, ingested.stderr
    assert "1 arrival" in ingested.stderr


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("point", ["state", "published"])
def test_a_run_that_has_read_erased_events_starts_again(
    machines: Machines, point: str, is_first: bool
) -> None:
    if not is_first:
        assert call("run", PER_MINUTE).exit_code == 0
        land_reading(machines.shared, 5, "ann", "bob")
        ingest()
    run, erasure = machines.interrupt(("run", PER_MINUTE), point, ERASE)
    assert erasure.code == 0, erasure.messages
    assert run.code == 0, run.messages
    machines.check_settled()


@pytest.mark.parametrize("point", ["log", "timeline"])
def test_an_ingest_that_was_paused_too_long_is_refused(machines: Machines, point: str) -> None:
    land_reading(machines.shared, 5, "bob")
    ingested, erasure = machines.interrupt(("ingest", READINGS), point, ERASE)
    assert erasure.code == 0, erasure.messages
    assert ingested.code == 2, ingested.messages
    assert "Another ingest of 'readings' has taken over" in ingested.messages
    assert machines.tables_of_ann() == []
    assert call("ingest", READINGS).exit_code == 0
    machines.check_settled()


@pytest.mark.parametrize("point", ["copies", "erased", "fenced", "erasure", "letters", "counted"])
@pytest.mark.parametrize("other", [("run", PER_MINUTE), ERASE], ids=["run", "erasure"])
def test_an_erasure_that_was_paused_too_long(
    machines: Machines, point: str, other: tuple[str, ...]
) -> None:
    assert call("run", PER_MINUTE).exit_code == 0
    land_reading(machines.shared, 5, "ann", "bob")
    ingest()
    erasure, second = machines.interrupt(ERASE, point, other)
    assert second.code == 0, second.messages
    if erasure.code != 0:
        # The same erasure on the other machine has done its work.
        assert other == ERASE, erasure.messages
        assert erasure.code == 2
        assert "because another erasure deleted events of it at the same time" in erasure.messages
    machines.check_settled()
