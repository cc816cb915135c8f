"""`tools/setup` on machines that lack something: one sentence each, and nothing begun."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READ = (
    "tools/setup",
    "tools/bootstrap.lock",
    "requirements.lock",
    "pyproject.toml",
    "platform/tidemark/engine/jars.py",
)
JAVA = "#!/bin/sh\necho 'openjdk version \"{}\"' >&2\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that set-up reads, where nothing was ever set up."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with the shell's usual tools, and neither Java nor Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("cat", "cksum", "dirname", "head", "sed"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def put(path: Path, name: str, script: str) -> None:
    (path / name).write_text(script)
    (path / name).chmod(0o755)


def set_up(checkout: Path, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "tools/setup"], env={"PATH": str(path), **env}, capture_output=True, text=True
    )


def test_a_machine_without_java_is_told_so_in_one_sentence(checkout: Path, path: Path) -> None:
    told = set_up(checkout, path)
    assert told.returncode == 2
    assert told.stderr == (
        "setup: Tidemark needs Java 17 or 21, and 'java' does not run: "
        "install one, or set JAVA_HOME to it.\n"
    )


def test_a_machine_with_an_old_java_is_told_its_version(checkout: Path, path: Path) -> None:
    put(path, "java", JAVA.format("11.0.2"))
    told = set_up(checkout, path)
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert "'java' is Java 11" in told.stderr


def test_the_java_of_java_home_comes_before_that_of_the_path(checkout: Path, path: Path) -> None:
    put(path, "java", JAVA.format("17.0.1"))
    home = checkout / "jdk"
    (home / "bin").mkdir(parents=True)
    put(home / "bin", "java", JAVA.format("1.8.0_302"))
    told = set_up(checkout, path, JAVA_HOME=str(home))
    assert told.returncode == 2
    assert f"'{home}/bin/java' is Java 8:" in told.stderr


def test_a_machine_without_python_3_11_is_told_so_in_one_sentence(
    checkout: Path, path: Path
) -> None:
    put(path, "java", JAVA.format("17.0.1"))
    put(path, "python3", "#!/bin/sh\nexit 1\n")
    told = set_up(checkout, path)
    assert told.returncode == 2
    assert told.stderr == (
        "setup: Tidemark needs Python 3.11, and no python3.11, python3 or python on the PATH is "
        "one: install it.\n"
    )
    assert not (checkout / ".venv").exists()
