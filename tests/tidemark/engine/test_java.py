"""Java is found by JAVA_HOME or the PATH; none, or a wrong one, is one sentence."""

import os
from pathlib import Path

import pytest

from tidemark.base.errors import EngineError
from tidemark.engine.java import find_java


def java_home(folder: Path, version: str) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.1"])
def test_a_java_that_spark_runs_on_is_found(tmp_path: Path, version: str) -> None:
    assert find_java(java_home(tmp_path, version)) == f"{tmp_path}/bin/java"


def test_another_java_is_refused_with_its_version(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"needs Java 17 or 21, and '.*java' is Java 11:"):
        find_java(java_home(tmp_path, "11.0.2"))


def test_no_java_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"needs Java 17 or 21, and '.*java' does not run:"):
        find_java({"JAVA_HOME": str(tmp_path)})
