"""Builds of one mart on two machines with their own homes: only one of them writes at a time."""

import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from deltalake import DeltaTable

from helpers.processes.commands import surround
from helpers.processes.machines import COMMAND, LEASE_SECONDS, machine
from tidemark.base.settings import Settings
from tidemark.store.workers.hold import is_free
from tidemark.store.workers.record_store import MART, records_of
from tidemark_streaming.dbt import dbt_process

# Starts dbt and Dagster, kills them, and waits until leases end.
pytestmark = pytest.mark.slow

_SECONDS = 120

_LONG = 1500
"""The pauses of a build that is killed before its end. Each of them takes 0.2 seconds."""

_PAUSE = """\
{% macro pause() %}
  {% if execute %}
    {% for _ in range(env_var('TEST_PAUSES') | int) %}
      {% do run_query("select java_method('java.lang.Thread', 'sleep', 200L)") %}
    {% endfor %}
  {% endif %}
{% endmacro %}
"""
"""The code before the mart. The queries are short, so that none continues after its dbt."""

_MODEL = """\
{{ config(materialized='table', pre_hook="{{ pause() }}") }}
select '{{ env_var("TEST_BUILDER") }}' as builder
"""

_MATERIALIZE = """
import dagster as dg
from tidemark.base.settings import Settings
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.marts import mart_assets

settings = Settings()
dg.materialize(mart_assets(settings), resources={"tidemark": TidemarkResource(settings)})
"""
"""The program that materializes all marts with Dagster."""

_BUILDS = {
    "command": (COMMAND, ("dbt", "build", "m")),
    "command of dbt": (COMMAND, ("dbt", "run")),
    "Dagster": (_MATERIALIZE, ()),
}
"""The ways to build the mart: the program and its arguments."""


class Machines:
    """Starts builds of a mart on machines that share a warehouse.

    Args:
        folder: the folder of the dbt project and the homes.
    """

    def __init__(self, shared: Settings, folder: Path) -> None:
        self.shared = shared
        self._folder = folder
        models = folder / "project" / "models"
        models.mkdir(parents=True)
        project = "name: shop\nprofile: tidemark\nmodels:\n  shop:\n    +file_format: delta\n"
        location = "{{ env_var('TIDEMARK_WAREHOUSE') }}/{{ target.schema }}"
        (folder / "project" / "dbt_project.yml").write_text(
            f'{project}    +location_root: "{location}"\n'
        )
        (models / "m.sql").write_text(_MODEL)
        (folder / "project" / "macros").mkdir()
        (folder / "project" / "macros" / "pause.sql").write_text(_PAUSE)

    def build(
        self, name: str, way: str, pauses: int
    ) -> AbstractContextManager["subprocess.Popen[str]"]:
        """Build the mart on a machine.

        Args:
            way: a key of `_BUILDS`.
            pauses: the number of pauses in the build.
        """
        program, arguments = _BUILDS[way]
        variables: Mapping[str, str] = {
            "TIDEMARK_MARTS": str(self._folder / "project"),
            "TEST_PAUSES": str(pauses),
            "TEST_BUILDER": name,
        }
        return machine(
            self.shared, self._folder, name, *arguments, program=program, variables=variables
        )

    def builders(self) -> list[str]:
        """Return the machine that wrote the mart last, and none if the mart does not exist."""
        path = f"{self.shared.warehouse}/{self.shared.database}_marts/m".removeprefix("file://")
        if not DeltaTable.is_deltatable(path):
            return []
        return DeltaTable(path).to_pyarrow_table()["builder"].to_pylist()

    def await_dbt(self, build: "subprocess.Popen[str]") -> psutil.Process:
        """Wait until a build has the mart and has started dbt. Return the process of dbt."""
        deadline = time.monotonic() + _SECONDS
        while is_free(records_of(self.shared).read_record(MART, "m")) or not _find_dbt(build):
            assert build.poll() is None, build.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (dbt,) = _find_dbt(build)
        return dbt


@pytest.fixture
def machines(engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    surround(monkeypatch, engine.model_copy(update={"database": f"marts_{uuid4().hex[:12]}"}))
    return Machines(Settings(), tmp_path)


def _find_dbt(build: "subprocess.Popen[str]") -> list[psutil.Process]:
    children = psutil.Process(build.pid).children()
    return [child for child in children if dbt_process.MODULE in child.cmdline()]


def _await_line(build: "subprocess.Popen[str]", part: str) -> str:
    """Return the first line of a build's messages that contains a text."""
    assert build.stderr is not None
    killer = threading.Timer(_SECONDS, build.kill)
    killer.start()
    lines = list[str]()
    for line in build.stderr:
        lines.append(line)
        if part in line:
            killer.cancel()
            return line
    raise AssertionError("".join(lines))


@pytest.mark.parametrize(
    ("first_way", "second_way"),
    [("command", "Dagster"), ("Dagster", "command"), ("command of dbt", "command")],
)
def test_a_build_waits_for_another_and_takes_over_if_that_is_killed(
    machines: Machines, first_way: str, second_way: str
) -> None:
    with machines.build("one", first_way, _LONG) as first:
        dbt = machines.await_dbt(first)
        with machines.build("two", second_way, 0) as second:
            _await_line(second, f"Waiting for process {first.pid} on one, which builds mart 'm'.")
            time.sleep(LEASE_SECONDS)
            assert machines.builders() == []
            assert not _find_dbt(second)
            first.kill()
            killed_at = time.monotonic()
            # Its dbt must not write any more either.
            dbt.wait(10)
            machines.await_dbt(second)
            assert time.monotonic() - killed_at < 60
            _, messages = second.communicate(timeout=_SECONDS)
            assert second.returncode == 0, messages
    assert machines.builders() == ["two"]
    assert is_free(records_of(machines.shared).read_record(MART, "m"))


def test_a_build_that_ends_lets_the_next_begin(machines: Machines) -> None:
    with machines.build("one", "command", 30) as first:
        machines.await_dbt(first)
        with machines.build("two", "command", 0) as second:
            _await_line(second, f"Waiting for process {first.pid} on one, which builds mart 'm'.")
            _, messages = first.communicate(timeout=_SECONDS)
            assert first.returncode == 0, messages
            assert machines.builders() == ["one"]
            _, messages = second.communicate(timeout=_SECONDS)
            assert second.returncode == 0, messages
    assert machines.builders() == ["two"]
