"""A machine of a project: a copy of the project's code, with a home of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from helpers.data.landing import put
from tidemark.engine.ports import free_port

PROJECT = Path(__file__).parents[2] / "cluster" / "project"
"""The project `market`."""

TIDEMARK = Path(sys.executable).with_name("tidemark")
_LONGEST_SECONDS = 900
"""The time after which a command is killed. None of them takes a tenth of it on an idle machine."""


@dataclass(frozen=True)
class Machine:
    """A copy of the project, and the environment of its commands.

    Args:
        folder: the copy, which contains the home.
        environment: the variables, in addition to those of the tests.
    """

    folder: Path
    environment: Mapping[str, str]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Tidemark."""
        return self._call([str(TIDEMARK), *arguments])

    def materialize(self, asset: str, partition: str) -> None:
        """Materialize a partition of an asset with Dagster."""
        options = ["--select", asset, "--partition", partition, "-m", "market.definitions"]
        done = self._call([sys.executable, "-m", "dagster", "asset", "materialize", *options])
        assert done.returncode == 0, done.stdout + done.stderr

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_SECONDS,
        )

    def run(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.call(*arguments)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def start(self, *arguments: str, fail_at: str | None = None) -> Iterator["RunningCommand"]:
        """Yield a running command, which is killed at the end.

        Args:
            fail_at: the fail point at which the command kills itself.
        """
        fail_point = {} if fail_at is None else {"TIDEMARK_FAIL_AT": fail_at}
        with subprocess.Popen(
            [TIDEMARK, *arguments],
            cwd=self.folder,
            env={**self._variables(), **fail_point},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            command = RunningCommand(process)
            try:
                yield command
            finally:
                if process.poll() is None:
                    process.kill()

    def rows(self, table: str, database: str = "tidemark") -> list[str]:
        """Return the rows of a table as sorted texts; none if the table does not exist.

        The time of an arrival, at which a command ran, is left out.
        """
        place = f"{self.environment['TIDEMARK_WAREHOUSE']}/{database}/{table}"
        try:
            found = DeltaTable(place).to_pyarrow_table()
        except TableNotFoundError:
            return []
        columns = [name for name in found.column_names if name != "arrived_at"]
        rows = found.select(columns).to_pylist()
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)

    def land(self, source: str, name: str, text: str) -> None:
        """Write a file into the landing folder of a source."""
        put(f"{self.environment['TIDEMARK_LANDING']}/{source}", name, text)

    def behind(self, asset: str) -> int:
        """Return the number of arrivals that an asset has not processed."""
        status: Any = json.loads(self.run("status", "--json"))
        (found,) = (each for each in status["assets"] if each["asset"] == asset)
        return found["behind"]

    def await_current(self, asset: str, seconds: float = 300) -> None:
        """Wait until an asset has processed all arrivals."""
        deadline = monotonic() + seconds
        while (behind := self.behind(asset)) > 0:
            assert monotonic() < deadline, f"'{asset}' is still {behind} arrivals behind."
            sleep(1)

    def kill_engine(self) -> None:
        """Kill the engine of this machine."""
        record = json.loads(Path(self.environment["TIDEMARK_HOME"], "pids/engine.json").read_text())
        os.kill(record["pid"], signal.SIGKILL)

    def _variables(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if "TIDEMARK_" not in name}
        return {**kept, "COLUMNS": "300", **self.environment}


class RunningCommand:
    """A command of Tidemark that runs, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines = list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def await_line(self, part: str, seconds: float = 300) -> float:
        """Wait for a line that contains a text. Return the seconds that this took."""
        begun = monotonic()
        while not any(part in line for line in self.lines):
            assert self.process.poll() is None, self.output
            assert monotonic() - begun < seconds, self.output
            sleep(0.1)
        return monotonic() - begun

    def end(self, seconds: float = _LONGEST_SECONDS) -> int:
        """Wait for the end of the command. Return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(60)
        return code

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))


def create_machine(folder: Path, **environment: str) -> Machine:
    """Return a machine with a copy of the project, and free ports."""
    shutil.copytree(PROJECT, folder)
    ports = {f"TIDEMARK_{name}_PORT": str(free_port()) for name in ("ENGINE", "WEBSERVER", "WATCH")}
    fixed = {
        "TIDEMARK_HOME": str(folder / ".tidemark"),
        "TIDEMARK_ENGINE_MEMORY": "1g",
        "TIDEMARK_ENGINE_ARCHIVE": "false",
        "TIDEMARK_DURABLE": "false",
    }
    return Machine(folder, {**fixed, **ports, **environment})
