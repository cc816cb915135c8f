"""Tests that other users of the machine cannot access a home, its locks or a project."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.processes.strangers import USER, as_stranger, needs_a_stranger
from tidemark.base.errors import DefinitionError
from tidemark.base.files.private import make_folder, open_lock
from tidemark.base.files.trust import TRUSTED
from tidemark.base.project import python_path
from tidemark.base.settings import FILE, Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.launch.cache import lock_folder
from tidemark.engine.server import stop_engine
from tidemark_streaming.base import foreground
from tidemark_streaming.dbt.marts import Marts
from tidemark_streaming.home import orchestrator
from tidemark_streaming.streams import desired_streams

LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def used(tmp_path: Path) -> Settings:
    """Return settings of a home in which each kind of process has left its files."""
    settings = Settings(home=tmp_path / "made" / "home")
    home = settings.home
    orchestrator.prepare_folder(home)
    with (
        foreground.record_running(settings, foreground.STREAM, "some"),
        lock_folder(home / "alone" / "made"),
    ):
        desired_streams.renew_lease(settings, "some", "me", 60)
        desired_streams.request_stream(settings, "some")
        process = ManagedProcess(home, "process")
        process.start(("sleep", "60"), 1, os.environ, tmp_path)
        process.stop()
        stop_engine(settings)
    return settings


def test_a_home_and_its_locks_are_private(used: Settings) -> None:
    home = used.home
    locks = [*home.rglob("*.lock")]
    assert {file.name for file in locks} == {"engine.lock", "made.lock", ".lock"}
    assert {mode(file) for file in locks} == {0o600}
    workers = Path(used.warehouse) / used.database / "_workers"
    folders = [home, home.parent, workers, *(path for path in home.iterdir() if path.is_dir())]
    assert {
        path.name: oct(mode(path)) for path in folders if path.name not in ("alone", "warehouse")
    } == dict.fromkeys(("home", "made", "logs", "pids", "_workers", "dagster"), "0o700")


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


def own(path: Path) -> None:
    os.chown(path, USER, USER, follow_symlinks=False)


def link(path: Path) -> None:
    """Replace a file or folder by a symbolic link of another user."""
    moved = path.parent.parent / "moved" / path.name
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    path.symlink_to(moved)
    own(path)


def link_into_an_open_folder(path: Path) -> None:
    """Replace a file or folder by a link of this user to a folder that others can write to."""
    moved = path.parent.parent / "moved" / path.name
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    path.symlink_to(moved)
    moved.parent.chmod(0o1777)


def open_to_a_group(path: Path) -> None:
    os.chown(path, -1, USER)
    path.chmod(0o775)


ATTACKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "owned": (own, "belongs to another user, 'nobody'"),
    "linked": (link, "belongs to another user, 'nobody'"),
    "linked elsewhere": (link_into_an_open_folder, "all users can write to '.*moved'"),
    "open": (lambda path: path.chmod(0o757), "all users can write to"),
    "open and sticky": (lambda path: path.chmod(0o1777), "all users can write to"),
    "open to a group": (open_to_a_group, "the group 'nogroup' can write to"),
}
"""Ways in which another user can change a file or folder, and the message about each."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, which has a project of two packages and a module."""
    project = tmp_path / "project"
    for package in ("shop", "shop/inner", "others"):
        (project / package).mkdir(parents=True)
        (project / package / "__init__.py").touch()
    (project / "module.py").touch()
    (project / "landing").mkdir(mode=0o777)
    (project / "landing").chmod(0o1777)
    (project / FILE).write_text('domains = "shop"\n')
    monkeypatch.chdir(project)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return project


@needs_a_stranger
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "path",
    [
        *(FILE, ".", "module.py", "shop", "shop/__init__.py", "shop/inner"),
        *("shop/inner/__init__.py", "others", "others/__init__.py"),
    ],
)
def test_a_project_that_another_user_can_change_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, attack: str
) -> None:
    if path == "." and attack.startswith("linked"):
        # The working folder is known by its real path.
        attack = "owned"
    act, message = ATTACKS[attack]
    assert Settings().domains == ("shop",)
    assert python_path() == {"PYTHONPATH": str(project)}
    act(project / path)
    with pytest.raises(DefinitionError, match=f"{message}.*{TRUSTED}={project}"):
        Settings()
    assert python_path() == {}, "its packages are not found either"
    monkeypatch.setenv(TRUSTED, f"/other:{project}")
    assert Settings().domains == ("shop",)
    assert python_path() == {"PYTHONPATH": str(project)}


def test_links_and_groups_that_no_other_user_can_change_are_trusted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "shop").rename(project.parent / "shop")
    (project / "shop").symlink_to(project.parent / "shop")
    (project / "shop" / "itself").symlink_to(project / "shop")
    (project / "shop" / "missing").symlink_to("nowhere")
    # Some systems give each user a group, and let it write.
    (project / "shop").chmod(0o775)
    assert Settings().domains == ("shop",)


@needs_a_stranger
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("path", [".", "dbt_project.yml", "models", "models/a.sql"])
def test_a_dbt_project_that_another_user_can_change_is_refused(
    tmp_path: Path, path: str, attack: str
) -> None:
    folder = tmp_path / "marts" / "dbt"
    (folder / "models").mkdir(parents=True)
    (folder / "dbt_project.yml").touch()
    (folder / "models" / "a.sql").touch()
    settings = Settings(marts=folder)
    assert Marts(settings).folder == folder
    act, message = ATTACKS[attack]
    act(folder / path)
    with pytest.raises(DefinitionError, match=message):
        Marts(settings)


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
