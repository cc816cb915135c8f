"""Tests that other users of the machine cannot access a home, its locks or a project."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.processes.strangers import USER, as_stranger, needs_a_stranger
from tidemark.base.errors import DefinitionError
from tidemark.base.files.private import TRUSTED, make_folder, open_lock
from tidemark.base.project import python_path
from tidemark.base.settings import FILE, Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.launch.cache import lock_folder
from tidemark.engine.server import stop
from tidemark.store import lock_files
from tidemark_streaming.base import foreground
from tidemark_streaming.home import orchestrator
from tidemark_streaming.ingest import ingest_files
from tidemark_streaming.streams import desired_streams

LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def used(tmp_path: Path) -> Settings:
    """Return settings of a home in which each kind of process has left its files."""
    settings = Settings(home=tmp_path / "made" / "home")
    home = settings.home
    with (
        foreground.running(settings, foreground.STREAM, "some"),
        lock_folder(home / "alone" / "made"),
    ):
        desired_streams.renew_lease(home / "leases" / "some", "me", 60)
        desired_streams.request(settings, "some")
        orchestrator.prepare(home)
        process = ManagedProcess(home, "process")
        process.start(("sleep", "60"), 1, os.environ, tmp_path)
        process.stop()
        stop(settings)
    return settings


def test_a_home_and_its_locks_are_private(used: Settings) -> None:
    home = used.home
    locks = [file for file in home.rglob("*") if file.suffix == ".lock"]
    assert {file.name for file in locks} == {
        *("engine.lock", "made.lock", ".some.lock", ".stream_some.lock")
    }
    assert {mode(file) for file in locks} == {0o600}
    folders = [home, home.parent, *(path for path in home.iterdir() if path.is_dir())]
    assert {
        path.name: oct(mode(path)) for path in folders if path.name != "alone"
    } == dict.fromkeys(
        ("home", "made", "logs", "pids", "foreground", "streams", "leases", "dagster"), "0o700"
    )


@needs_a_stranger
def test_another_user_cannot_take_a_lock(used: Settings) -> None:
    """Not even if the folders of the home are readable for others."""
    for folder in (used.home.parent, used.home, *used.home.rglob("*/")):
        folder.chmod(0o755)
    closed = {path: mode(path) for path in used.home.parents if not mode(path) & stat.S_IXOTH}
    try:
        for path in closed:
            path.chmod(0o711)
        for lock in used.home.rglob("*.lock"):
            assert "PermissionError" in as_stranger(LOCK, lock).stderr
    finally:
        for path, before in closed.items():
            path.chmod(before)


def test_a_symbolic_link_is_refused_as_a_lock(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        open_lock(tmp_path / "lock")
    assert not victim.exists()


def test_object_store_locks_follow_no_links_in_temporary_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its earlier names in that folder could be guessed."""
    victim, temporary = tmp_path / "victim", tmp_path / "temporary"
    victim.mkdir()
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for name in ("tidemark_s3___bucket_path", "tidemark_s3a___bucket_path"):
        (temporary / name).symlink_to(victim)
    monkeypatch.setattr(lock_files, "_SHARED", tmp_path / "own")
    warehouse: Any = SimpleNamespace(location="s3://bucket/path", database="some")
    source: Any = SimpleNamespace(name="orders")
    with ingest_files.lock_ingest(warehouse, source):
        assert [*victim.iterdir(), *temporary.glob("*/*")] == []
        for lock in (tmp_path / "own").rglob("*.lock"):
            assert (mode(lock), mode(lock.parent)) == (0o600, 0o700)
            assert lock.parent.name == "some", "each database has its own"
        assert (tmp_path / "own").is_dir()


@needs_a_stranger
@pytest.mark.parametrize("owned", ["file", "folder"])
def test_a_settings_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owned: str
) -> None:
    file = tmp_path / FILE
    file.write_text('domains = "theirs"\n')
    monkeypatch.chdir(tmp_path)
    assert Settings().domains == ("theirs",)
    os.chown(file if owned == "file" else tmp_path, USER, USER)
    with pytest.raises(
        DefinitionError, match=f"belongs to another user, 'nobody'.*{TRUSTED}={tmp_path}"
    ):
        Settings()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert python_path() == {}, "its packages are not found either"
    monkeypatch.setenv(TRUSTED, f"/other:{tmp_path}")
    assert Settings().domains == ("theirs",)
    assert python_path() == {"PYTHONPATH": str(tmp_path)}


@needs_a_stranger
def test_a_command_runs_no_code_of_another_users_project(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('domains = "theirs"\n')
    (tmp_path / "theirs.py").write_text("open('ran', 'w')")
    os.chown(tmp_path / FILE, USER, USER)
    command = [Path(sys.executable).with_name("tidemark"), "status"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "belongs to another user, 'nobody'" in " ".join(done.stderr.split())
    assert not (tmp_path / "ran").exists()


def test_new_parent_folders_are_private_and_existing_ones_unchanged(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    made = make_folder(tmp_path / "open" / "a" / "b")
    assert [mode(path) for path in (made, made.parent, made.parents[1])] == [0o700, 0o700, 0o755]
    assert make_folder(made) == made
