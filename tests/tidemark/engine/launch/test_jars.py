"""Tests of fetching and verifying jars. A folder replaces the Maven repository."""

import hashlib
from pathlib import Path

import pytest

from tidemark.base.errors import EngineError
from tidemark.engine.launch.jars import Jar, ensure_jars
from tidemark.engine.launch.java import find_java

CONTENT = b"not really a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """Return the URI of a Maven repository with one jar."""
    root = tmp_path / "repository"
    folder = root / "org/example/thing/1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.jar").write_bytes(CONTENT)
    (folder / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>thing</artifactId><version>1.0</version></project>"
    )
    return root.as_uri()


def test_a_jar_is_fetched_once(tmp_path: Path, repository: str) -> None:
    folder = tmp_path / "jars"
    assert ensure_jars(find_java(), folder, [JAR], repository) == [folder / "thing-1.0.jar"]
    assert [file.name for file in folder.iterdir()] == ["thing-1.0.jar"]
    ensure_jars(find_java(), folder, [JAR], "file:///nowhere")


def test_a_damaged_jar_is_fetched_again(tmp_path: Path, repository: str) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / JAR.file_name).write_bytes(CONTENT[:5])
    ensure_jars(find_java(), folder, [JAR], repository)
    assert (folder / JAR.file_name).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_leaves_no_file(tmp_path: Path, repository: str) -> None:
    folder = tmp_path / "jars"
    other = Jar(JAR.group, JAR.artifact, JAR.version, "0" * 64)
    with pytest.raises(EngineError, match=rf"thing-1\.0\.jar is not the file.*{JAR.sha256}"):
        ensure_jars(find_java(), folder, [other], repository)
    assert list(folder.iterdir()) == []


def test_a_jar_missing_from_the_repository_is_reported(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(EngineError) as raised:
        ensure_jars(find_java(), tmp_path / "jars", [JAR], empty.as_uri())
    assert str(raised.value).startswith(f"Could not fetch thing-1.0.jar from {empty.as_uri()} (")
    assert "\n" not in str(raised.value)
    assert "maven_repository" in str(raised.value)
