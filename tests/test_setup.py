"""Test `tools/setup`: missing requirements give a message, and unchanged steps are skipped."""

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
    "platform/tidemark/engine/launch/cache.py",
    "platform/tidemark/engine/launch/jars.py",
    "platform/tidemark/engine/launch/java.py",
)
JAVA = "#!/bin/sh\necho 'openjdk version \"{}\"' >&2\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files that the setup reads, before the first setup."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a PATH with basic shell tools and without Java and Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("cat", "cksum", "dirname"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def put(path: Path, name: str, script: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(script)
    (path / name).chmod(0o755)


def set_up(checkout: Path, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "tools/setup"], env={"PATH": str(path), **env}, capture_output=True, text=True
    )


def stamp(checkout: Path, path: Path, **env: str) -> str:
    """Return the stamp of a complete setup, computed by its own script."""
    script = (checkout / "tools/setup").read_text().partition("if [ -x")[0]
    probe = checkout / "tools/probe"
    put(probe.parent, probe.name, script + "printf '%s\\n' \"$wanted $PWD\"\n")
    done = subprocess.run([probe], env={"PATH": str(path), **env}, capture_output=True, text=True)
    return done.stdout


def test_setup_without_python_3_11_fails_with_a_message(checkout: Path, path: Path) -> None:
    put(path, "python3", "#!/bin/sh\nexit 1\n")
    told = set_up(checkout, path)
    assert told.returncode == 2
    assert told.stderr == (
        "setup: Tidemark needs Python 3.11, and no python3.11, python3 or python on the PATH is "
        "one: install it.\n"
    )
    assert not (checkout / ".venv").exists()


def test_setup_runs_again_only_after_java_changes(checkout: Path, path: Path) -> None:
    put(path, "java", JAVA.format("17.0.1"))
    put(checkout / ".venv/bin", "python", "#!/bin/sh\n")
    (checkout / ".engine/jars").mkdir(parents=True)
    (checkout / ".venv/setup.stamp").write_text(stamp(checkout, path))
    assert set_up(checkout, path).returncode == 0
    put(path, "java", JAVA.format("21.0.1"))
    told = set_up(checkout, path)
    assert told.returncode == 2
    assert "needs Python 3.11" in told.stderr


def test_setup_detects_a_change_of_java_home(checkout: Path, path: Path) -> None:
    put(checkout / ".venv/bin", "python", "#!/bin/sh\n")
    put(checkout / "jdk/bin", "java", JAVA.format("17.0.1"))
    (checkout / ".engine/jars").mkdir(parents=True)
    (checkout / ".venv/setup.stamp").write_text(stamp(checkout, path))
    assert set_up(checkout, path).returncode == 0
    assert set_up(checkout, path, JAVA_HOME=str(checkout / "jdk")).returncode == 2
