"""Test the built wheel in a new environment and an empty folder, without access to the checkout.

A new user follows the tutorial. The demo runs on fewer days, and a second run continues.

The Python is the newest supported one on this machine. Only the packages that the wheel requires
are installed, in the locked versions. The jars of engine and broker come from a Maven repository
of files, copied from the checkout. Java comes from its package.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from email.parser import Parser
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import SHORT_LIVED
from helpers.processes.pythons import newest
from helpers.suite.interruption import HOMES
from helpers.suite.pages import commands, followed, section, unprinted
from tidemark.engine.launch import jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark_streaming.kafka import broker

# Builds and installs the package, then runs the demo and the tutorial.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KAFKA = "From Kafka"
LOCATIONS = """{workspaceOrError {... on Workspace {locationEntries {name
locationOrLoadError {__typename ... on PythonError {message}}}}}}"""


class Installed:
    """A user with a wheel and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        self.installing = 0.0
        self.bin = folder / "venv" / "bin"
        self.webserver = free_port()
        self.env = {
            # The PATH has no Java and no git, because the package brings its own Java.
            "PATH": str(self.bin),
            "HOME": str(folder),
            HOMES: os.environ[HOMES],
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TIDEMARK_MAVEN_REPOSITORY": _repository(folder / "maven").as_uri(),
            "TIDEMARK_ENGINE_ARCHIVE": "false",
            "TIDEMARK_ENGINE_JAVA_OPTIONS": SHORT_LIVED,
            "TIDEMARK_ENGINE_MEMORY": "2g",
            "TIDEMARK_ENGINE_PORT": str(free_port()),
            "TIDEMARK_WEBSERVER_PORT": str(self.webserver),
            "TIDEMARK_WATCH_PORT": str(free_port()),
            "TIDEMARK_KAFKA_PORT": str(free_port()),
        }
        self._wheel = self._build()
        python = newest()
        subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        told = "import platform; print(platform.python_version())"
        asked = [self.bin / "python", "-c", told]
        self.python = subprocess.run(
            asked, capture_output=True, text=True, check=True
        ).stdout.strip()

    def install(self, extra: str = "", *beside: str) -> None:
        """Install the wheel with an extra and more packages, in the locked versions.

        `installing` is the total time of all installations in seconds.
        """
        began = time.monotonic()
        with zipfile.ZipFile(self._wheel) as wheel:
            (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            asked = Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist", [])
        needed = self.folder / "needed.lock"
        needed.write_text("".join(_closure([*asked, *beside], extra, self.python)))
        self.uv("install", "--no-deps", "--require-hashes", "-r", needed)
        self.uv("install", "--no-deps", self._wheel)
        self.uv("check")
        self.installing += time.monotonic() - began

    def tidemark(
        self, *arguments: str, where: Path | None = None, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command. Return its result.

        Args:
            where: the working folder, if not the default.
            settings: environment variables.
        """
        return subprocess.run(
            [self.bin / "tidemark", *arguments],
            cwd=where or self.work,
            env=self.env | settings,
            capture_output=True,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        """Return the output of `tidemark status`."""
        return json.loads(self.tidemark("status", "--json").stdout)

    def rows(self, table: str, *columns: str, database: str = "tidemark") -> list[tuple[Any, ...]]:
        """Read some columns of a table as any Delta client does."""
        opened = DeltaTable(self.work / ".tidemark" / "warehouse" / database / table)
        found = opened.to_pyarrow_table(columns=[*columns])
        return [tuple(row.values()) for row in found.to_pylist()]

    def locations(self) -> dict[str, str]:
        """Return Dagster's code locations, each with the type of its result."""
        found = self.asked(LOCATIONS)["workspaceOrError"]["locationEntries"]
        return {e["name"]: e["locationOrLoadError"]["__typename"] for e in found}

    def runs(self) -> set[str]:
        """Return the jobs that have runs in Dagster."""
        found = self.asked("{runsOrError {... on Runs {results {jobName}}}}")
        return {run["jobName"] for run in found["runsOrError"]["results"]}

    def asked(self, query: str) -> Any:  # noqa: ANN401 (JSON)
        """Return Dagster's answer to a GraphQL query."""
        url, asked = f"http://127.0.0.1:{self.webserver}/graphql", json.dumps({"query": query})
        request = urllib.request.Request(url, asked.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"]

    def uv(self, command: str, *arguments: str | Path) -> None:
        """Run `uv pip` on the environment."""
        uv, env = Path(sys.executable).with_name("uv"), dict(os.environ)
        for own, pips in (("SSL_CERT_FILE", "PIP_CERT"), ("UV_INDEX_URL", "PIP_INDEX_URL")):
            if pips in env:
                env.setdefault(own, env[pips])
        done = subprocess.run(
            [uv, "pip", command, "--quiet", "--python", self.bin / "python", *arguments],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def _build(self) -> Path:
        dist = self.folder / "dist"
        subprocess.run([ROOT / "tools/wheel", "-d", dist], check=True, capture_output=True)
        (wheel,) = dist.iterdir()
        return wheel


def _closure(asked: Iterable[str], extra: str, python: str) -> list[str]:
    """Return the lock's blocks of the packages and all their dependencies, for a Python version."""
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.M)
    locked = defaultdict[str, str](str)
    for block in blocks[1:]:
        # A package may have a block per range of Python versions.
        locked[re.split(r"[=\[ ]", block)[0]] += block
    found = dict[tuple[str, str], str]()
    new = [(text, extra) for text in asked]
    while new:
        text, wanted = new.pop()
        one = Requirement(text)
        name = canonicalize_name(one.name)
        version = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
        wanted_by = [{"extra": extra, **version} for extra in wanted.split(",")]
        if one.marker is not None and not any(map(one.marker.evaluate, wanted_by)):
            continue
        for each in ("", *one.extras):
            if (name, each) not in found:
                found[name, each] = locked[name]
                new += [(further, each) for further in requires(name) or ()]
    return sorted(set(found.values()))


def _repository(root: Path) -> Path:
    """Create a Maven repository with the jars of engine and broker. Return its folder."""
    java = find_java()
    for place, some in ((jars.FOLDER, jars.JARS), (broker.FOLDER, broker.pinned_jars())):
        for jar, path in zip(some, jars.ensure_jars(java, place, some), strict=True):
            folder = root / jar.group.replace(".", "/") / jar.artifact / jar.version
            folder.mkdir(parents=True, exist_ok=True)
            (folder / jar.file_name).unlink(missing_ok=True)
            (folder / jar.file_name).symlink_to(path)
    return root


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    user = Installed(tmp_path_factory.mktemp("user"))
    try:
        yield user
    finally:
        user.tidemark("down")
        shutil.rmtree(user.folder)


def test_commands_without_extras_work_or_name_the_missing_extra(user: Installed) -> None:
    user.install()
    assert user.tidemark("--version").stdout == "tidemark 0.1.0\n"
    status = user.tidemark("status")
    assert (status.returncode, "flights" in status.stdout) == (0, True), status.stderr
    for command, extra in ((["up"], "dagster"), (["dbt", "build"], "marts"), (["demo"], "demo")):
        said = user.tidemark(*command)
        assert said.returncode == 2, said.stderr
        assert f"pip install 'tidemark[{extra}]'" in said.stderr
        assert said.stderr.count("\n") == 1, said.stderr
    assert not (user.work / ".tidemark").exists()


# Takes ten minutes. `tests/test_followed_pages.py` follows pages with most of the same commands.
@pytest.mark.nightly
@pytest.mark.parametrize("kafka", [False, True])
def test_a_new_user_follows_the_tutorial(
    user: Installed, record_property: Callable[[str, object], None], *, kafka: bool
) -> None:
    user.install("dagster,marts", "pytest", "dagster-dg-cli")
    folder, python = user.folder / f"stranger-{kafka}", user.bin / "python"
    folder.mkdir()
    # The page makes a folder; the PATH has nothing of the system.
    if not (user.bin / "mkdir").exists():
        mkdir = shutil.which("mkdir")
        assert mkdir is not None
        (user.bin / "mkdir").symlink_to(mkdir)
    shop, stall = folder / "shop", folder / "stall"
    env = {
        **user.env,
        "COLUMNS": "200",
        # The page's tests reuse the running engine. Those of test_followed_pages.py start one.
        "TIDEMARK_TEST_HOME": str(shop / ".tidemark"),
    }
    began = time.monotonic()
    try:
        said = followed("docs/tutorial.md", folder, env, python, without=KAFKA)
        minutes = (time.monotonic() - began) / 60
        streamed = section("docs/tutorial.md", KAFKA)
        if kafka:
            streamed = followed("docs/tutorial.md", shop, env, python, only=KAFKA)
            assert re.search(r"10:00.*york.*37\.5.*LATE", streamed), streamed
            assert "equal: 6 rows of 'orders_hourly'" in streamed
        assert unprinted("docs/tutorial.md", said + streamed) == []
        traced = followed("docs/tracing.md", shop, env, python)
    finally:
        for place in (shop, stall):
            if place.is_dir():
                user.tidemark("down", where=place)
                user.tidemark("dev", "kafka", "down", where=place)
    record_property("Python", user.python)
    for what, figure in (
        ("to install, from packages that are here", user.installing / 60),
        ("of the tutorial's commands, fetching the engine's jars from files", minutes),
    ):
        record_property(f"minutes {what}", f"{figure:.2f}")
    assert re.search(r"york\|\s*37\.5\|\s+2\|\s+1\|\s+LATE\|\s+true", said), said
    assert re.search(r"50\.0\|2026-01-01 11:00:00\|\s+9000\.0", said), said
    assert "2 passed" in said
    assert re.search(r"orders_daily *│ success", said), said
    assert "All definitions loaded successfully" in said
    assert "Tidemark is up" in said
    assert "late, counted" in traced
    assert "published revision" in traced


@pytest.mark.nightly
def test_an_installed_project_is_found_from_any_folder(user: Installed) -> None:
    user.install("dagster,marts", "hatchling")
    place, elsewhere = user.folder / "projects", user.folder / "elsewhere"
    for folder in (place, elsewhere):
        folder.mkdir()
    assert user.tidemark("new", "shop", where=place).returncode == 0
    user.uv("install", "--no-deps", "--no-build-isolation", place / "shop")
    try:
        shutil.rmtree(place)
        status = user.tidemark("status", "--json", where=elsewhere)
        assert status.returncode == 0, status.stderr
        found = json.loads(status.stdout)
        assert [source["name"] for source in found["sources"]] == ["orders"]
        assert [asset["asset"] for asset in found["assets"]] == ["orders_hourly"]
    finally:
        user.uv("uninstall", "shop")


@pytest.fixture(scope="module")
def demo(user: Installed) -> subprocess.CompletedProcess[str]:
    """Run the demo in the empty folder. Return its result."""
    user.install("demo")
    return user.tidemark("demo", "--small", "--no-serve")


def test_the_demo_runs_in_an_empty_folder(
    user: Installed, demo: subprocess.CompletedProcess[str]
) -> None:
    assert demo.returncode == 0, demo.stderr
    assert (user.folder / "cache" / "tidemark" / "jars" / jars.JARS[0].file_name).exists()
    assert "streamed 4 arrivals, until January 5, 2013" in demo.stderr
    assert "equal" in demo.stdout
    assert "Departures by airport" in demo.stdout
    assert "Expectations of the windows" in demo.stdout
    assert "daily_punctuality" in demo.stdout
    assert "Warning" not in demo.stderr
    for name in ("arrivals.png", "arrivals.html", "late_loss.png", "late_loss.html"):
        assert (user.work / ".tidemark" / "pictures" / name).stat().st_size > 10_000
    assert user.tidemark("down").returncode == 0
    assert not any(process["running"] for process in user.status()["processes"])
    assert [path.name for path in user.work.iterdir()] == [".tidemark"]


@pytest.mark.nightly
@pytest.mark.usefixtures("demo")
def test_the_demo_continues_with_kafka(user: Installed) -> None:
    second = user.tidemark("demo", "--small", "--kafka")
    assert second.returncode == 0, second.stderr
    assert "Kafka broker" in second.stderr
    assert "the event log of flights is complete until January 5, 2013" in second.stderr
    assert "streamed 4 arrivals, until January 6, 2013" in second.stderr
    assert "Warning" not in second.stderr
    assert "Tidemark is up" in second.stdout
    assert user.locations() == dict.fromkeys(("flights", "weather", "marts"), "RepositoryLocation")
    assert user.runs() == {"flights_catch_up", "weather_catch_up"}
    (flights,) = user.status()["sources"][:1]
    assert (flights["name"], flights["arrivals"]) == ("flights", 20)
    arrivals = sorted(user.rows("flights_timeline", "arrival", "position"))
    assert set(json.loads(arrivals[-1][1])["flights"]["offsets"]) == {"0", "1", "2"}
    # Windows from the topic equal windows from files alone.
    for words in (
        ("ingest", "flights", "--recorded", "--days", "5", "--bulk"),
        ("run", "departures_hourly"),
    ):
        done = user.tidemark(*words, TIDEMARK_DATABASE="files")
        assert done.returncode == 0, done.stderr
    figures = (
        "departures_hourly",
        "window_start",
        "origin",
        "flights",
        "mean_delay",
        "late_events",
    )
    streamed = sorted(user.rows(*figures))
    assert streamed == sorted(user.rows(*figures, database="files"))
    assert len(streamed) > 200
    (dbt,) = (words for words in commands("docs/dbt.md") if words[0] == "dbt")
    for words in (dbt, ("dev", "kafka", "down"), ("down",)):
        done = user.tidemark(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not any(process["running"] for process in user.status()["processes"])
    assert [path.name for path in user.work.iterdir()] == [".tidemark"]
