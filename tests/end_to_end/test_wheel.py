"""The package that users install: the built wheel in an environment of its own, with nothing of
the checkout in reach, in an empty folder. There the demo runs on fewer days: whole, and again where
it ended.

Packages come in the versions of the lock, those alone that the wheel asks for, from what set-up
has fetched. The engine's jars come from a Maven repository of files, made of those of the checkout,
and its Java from the package that brings one.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from email.parser import Parser
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import SHORT_LIVED
from pages import followed
from tidemark.engine import jars
from tidemark.engine.connect import free_port

ROOT = Path(__file__).parents[2]
LOCATIONS = """{workspaceOrError {... on Workspace {locationEntries {name
locationOrLoadError {__typename ... on PythonError {message}}}}}}"""


class Installed:
    """A user who has a wheel, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        self.bin = folder / "venv" / "bin"
        self.webserver = free_port()
        self.env = {
            # No Java, no git, nothing: what is needed comes along.
            "PATH": str(self.bin),
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TIDEMARK_MAVEN_REPOSITORY": _repository(folder / "maven").as_uri(),
            "TIDEMARK_ENGINE_ARCHIVE": "false",
            "TIDEMARK_ENGINE_JAVA_OPTIONS": SHORT_LIVED,
            "TIDEMARK_ENGINE_MEMORY": "2g",
            "TIDEMARK_ENGINE_PORT": str(free_port()),
            "TIDEMARK_WEBSERVER_PORT": str(self.webserver),
            "TIDEMARK_WATCH_PORT": str(free_port()),
        }
        self._wheel = self._build()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)

    def install(self, extra: str = "", *beside: str) -> None:
        """Install the wheel and what it and an extra ask for, and packages beside it, in the lock's
        versions."""
        with zipfile.ZipFile(self._wheel) as wheel:
            (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            asked = Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist", [])
        needed = self.folder / f"needed{extra}.lock"
        needed.write_text("".join(_closure([*asked, *beside], extra)))
        self._uv("install", "--no-deps", "--require-hashes", "-r", needed)
        self._uv("install", "--no-deps", self._wheel)
        self._uv("check")

    def tidemark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What a command says."""
        command = [self.bin / "tidemark", *arguments]
        return subprocess.run(command, cwd=self.work, env=self.env, capture_output=True, text=True)

    def status(self) -> dict[str, Any]:
        """What `tidemark status` says."""
        return json.loads(self.tidemark("status", "--json").stdout)

    def locations(self) -> dict[str, str]:
        """The code locations that Dagster has, each with what became of it."""
        query = urllib.parse.quote(LOCATIONS)
        url = f"http://127.0.0.1:{self.webserver}/graphql?query={query}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
        return {e["name"]: e["locationOrLoadError"]["__typename"] for e in found}

    def _uv(self, command: str, *arguments: str | Path) -> None:
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
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = dist.iterdir()
        return wheel


def _closure(asked: Iterable[str], extra: str) -> list[str]:
    """The lock's blocks of the packages that are asked for, and of those that they ask for."""
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.M)
    locked = defaultdict[str, str](str)
    for block in blocks[1:]:
        # A package may have a block for each range of Python's versions.
        locked[re.split(r"[=\[ ]", block)[0]] += block
    found = dict[tuple[str, str], str]()
    new = [(text, extra) for text in asked]
    while new:
        text, wanted = new.pop()
        one = Requirement(text)
        name = canonicalize_name(one.name)
        if one.marker is not None and not one.marker.evaluate({"extra": wanted}):
            continue
        for each in ("", *one.extras):
            if (name, each) not in found:
                found[name, each] = locked[name]
                new += [(further, each) for further in requires(name) or ()]
    return sorted(set(found.values()))


def _repository(root: Path) -> Path:
    """A Maven repository of the jars that the engine needs."""
    for jar in jars.JARS:
        folder = root / jar.group.replace(".", "/") / jar.artifact / jar.version
        folder.mkdir(parents=True)
        (folder / jar.file).symlink_to(jars.FOLDER / jar.file)
    return root


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    user = Installed(tmp_path_factory.mktemp("user"))
    try:
        yield user
    finally:
        user.tidemark("down")
        shutil.rmtree(user.folder)


def test_without_extras_each_command_works_or_says_what_it_lacks(user: Installed) -> None:
    user.install()
    assert user.tidemark("--version").stdout == "tidemark 0.1.0\n"
    status = user.tidemark("status")
    assert (status.returncode, "flights" in status.stdout) == (0, True), status.stderr
    for command, extra in ((["up"], "dagster"), (["marts"], "marts"), (["demo"], "demo")):
        said = user.tidemark(*command)
        assert said.returncode == 2, said.stderr
        assert f"pip install 'tidemark[{extra}]'" in said.stderr
        assert said.stderr.count("\n") == 1, said.stderr
    assert not (user.work / ".tidemark").exists()


def test_the_demo_runs_in_an_empty_folder_and_a_second_time_goes_on(user: Installed) -> None:
    user.install("demo")
    first = user.tidemark("demo", "--small", "--no-serve")
    assert first.returncode == 0, first.stderr
    assert (user.folder / "cache" / "tidemark" / "jars" / jars.JARS[0].file).exists()
    assert "streamed 4 arrivals, until January 5, 2013" in first.stderr
    assert "equal" in first.stdout
    assert "Departures by airport" in first.stdout
    assert "What was expected of the windows" in first.stdout
    assert "daily_punctuality" in first.stdout
    for name in ("arrivals.png", "arrivals.html", "late_loss.png", "late_loss.html"):
        assert (user.work / ".tidemark" / "pictures" / name).stat().st_size > 10_000
    second = user.tidemark("demo", "--small")
    assert second.returncode == 0, second.stderr
    assert "the log of flights is there" in second.stderr
    assert "streamed 4 arrivals, until January 6, 2013" in second.stderr
    assert "Warning" not in first.stderr + second.stderr
    assert "Tidemark is up" in second.stdout
    assert user.locations() == dict.fromkeys(("flights", "weather", "marts"), "RepositoryLocation")
    (flights,) = user.status()["sources"][:1]
    assert (flights["name"], flights["arrivals"]) == ("flights", 20)
    assert user.tidemark("down").returncode == 0
    assert not any(process["running"] for process in user.status()["processes"])
    assert [path.name for path in user.work.iterdir()] == [".tidemark"]


def test_a_stranger_has_windows_of_their_own_data_in_dagster_in_a_quarter_of_an_hour(
    user: Installed,
) -> None:
    user.install("demo", "pytest", "dagster-dg-cli")
    folder, python = user.folder / "stranger", user.bin / "python"
    folder.mkdir()
    env = {
        **user.env,
        "COLUMNS": "200",
        "TIDEMARK_ENGINE_PORT": str(free_port()),
        # The tests of the page on the engine that runs: another one starts in test_docs.py.
        "TIDEMARK_TEST_HOME": str(folder / "shop" / ".tidemark"),
    }
    began = time.monotonic()
    try:
        said = followed("docs/tutorial.md", folder, env, python)
        minutes = (time.monotonic() - began) / 60
        traced = followed("docs/tracing.md", folder / "shop", env, python)
    finally:
        if (folder / "shop").is_dir():
            user.work, user.env = folder / "shop", env
            user.tidemark("down")
    assert minutes < 12, f"the commands took {minutes:.1f} minutes of a quarter of an hour"
    assert re.search(r"york\|\s*37\.5\|\s+2\|\s+1\|\s+LATE\|\s+true", said), said
    assert re.search(r"50\.0\|2026-01-01 11:00:00\|\s+9000\.0", said), said
    assert "2 passed" in said
    assert re.search(r"orders_daily *│ success", said), said
    assert "All definitions loaded successfully" in said
    assert "Tidemark is up" in said
    assert "late, admitted" in traced
    assert "published revision" in traced
