"""A new project works as its README describes: its commands, its scenario and its tests run in its
own folder and home, on the tests' engine."""

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes.commands import call
from helpers.suite.pages import fences, followed
from tidemark.base.settings import Settings
from tidemark.engine.connect import engine_address
from tidemark.engine.ports import free_port
from tidemark_streaming.testing.small_engine import TEST_HOME

# Creates new projects and follows their READMEs, with one process per command.
pytestmark = pytest.mark.slow

OTHER = ("--events", "readings", "--time", "takenAt", "--key", "device", "--value", "watts")
HOME = re.compile(r"TIDEMARK_|PYTHONPATH$|DAGSTER_")


class Beginner:
    """A user who follows the README in the folder of a new project."""

    def __init__(self, engine: Settings, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        own = {name: text for name, text in os.environ.items() if not HOME.match(name)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {**own, "PATH": path, "COLUMNS": "120"}

    @property
    def working(self) -> dict[str, str]:
        """Return the environment of commands: the engine runs already, everything else belongs to
        the folder."""
        ports = ("KAFKA", "WEBSERVER", "WATCH")
        return {
            **self._env,
            "TIDEMARK_REMOTE": engine_address(self._engine),
            "TIDEMARK_DATABASE": f"first_{uuid4().hex[:12]}",
            **{f"TIDEMARK_{name}_PORT": str(free_port()) for name in ports},
        }

    def follow(self) -> str:
        """Run the commands of the project's README, stop their processes, and return their
        output. Omit `tidemark up`: the tutorial's test, with an installed wheel, covers Dagster in
        a new project."""
        env, page = self.working, self._folder / "some.md"
        told = (self._folder / "README.md").read_text()
        page.write_text(re.sub(r"^tidemark up .*\n", "", told, flags=re.MULTILINE))
        assert page.read_text() != told
        assert any("tidemark up" in b.text.splitlines() for b in fences("docs/tutorial.md"))
        try:
            return followed(str(page), self._folder, env)
        finally:
            self.say("tidemark dev kafka down", env)

    def say(self, command: str, env: dict[str, str]) -> str:
        """Run a command in the folder and return its output."""
        done = subprocess.run(
            command.split(), cwd=self._folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def test(self) -> str:
        """Run the project's tests on the running engine and return their output."""
        engine = {
            TEST_HOME: str(self._engine.home),
            "TIDEMARK_ENGINE_PORT": str(self._engine.engine_port),
        }
        return self.say("pytest -p no:cacheprovider", self._env | engine)


@pytest.fixture
def made(engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beginner:
    """Return a user in the folder `shop`, where a test creates a project."""
    monkeypatch.chdir(tmp_path)
    return Beginner(engine, tmp_path / "shop")


@pytest.mark.nightly
def test_the_default_projects_readme_gives_the_documented_results(made: Beginner) -> None:
    assert call("new", "shop").exit_code == 0
    said = made.follow()
    assert re.search(r"arrivals +0 to 2\b.*watermark +2026-01-01T11:20:00Z", said, re.DOTALL), said
    assert "equal: 4 rows of 'orders_hourly'" in said
    assert re.search(r"orders_daily +│ success", said), said


@pytest.mark.nightly
def test_a_kafka_projects_readme_scenario_and_tests_run(
    made: Beginner,
) -> None:
    assert call("new", "shop", "--kafka", *OTHER).exit_code == 0
    said = made.follow()
    assert re.search(r"events +8\b.*watermark +2026-01-01T11:20:00Z", said, re.DOTALL), said
    assert "equal: 4 rows of 'readings_hourly'" in said
    assert re.search(r"readings_daily +│ success", said), said
    drawn = made.say("tidemark test scenarios/late.yaml --draw", made.working)
    assert "◆york 4" in drawn, drawn
    assert "None" not in drawn, drawn
    assert "2 passed" in made.test()
