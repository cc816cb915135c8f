"""A small disk for a test, which can be filled and made read-only."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A file system in memory at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, left: int = 0) -> None:
        """Fill the disk except for the given number of bytes."""
        there = os.statvfs(self.path)
        with self._ballast.open("ab") as file:
            file.write(bytes(max(there.f_bavail * there.f_frsize - left, 0)))

    def free(self) -> None:
        """Delete the file that fills the disk."""
        self._ballast.unlink()

    def lock(self, *, writable: bool = False) -> None:
        """Make the disk read-only, or writable again.

        Retry for a while, because a process that just exited may still have a file open.
        """
        deadline = time.monotonic() + 30
        while True:
            try:
                return _run("mount", "-o", f"remount,{'rw' if writable else 'ro'}", str(self.path))
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@contextmanager
def disk(path: Path, megabytes: int) -> Iterator[Disk]:
    """Mount a disk of the given size for the block. Skip the test if mounting is not allowed."""
    path.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    try:
        yield Disk(path)
    finally:
        _run("umount", "-l", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
