"""Provide fail points: places at which tests kill a process to check the state that it leaves.

A process with `TIDEMARK_FAIL_AT=<point>` is killed just before that point. The variable may also be
the path of a file that contains the name of the point. The file is deleted when its point is
reached, so of all processes that share it, one is killed, once.
"""

import os
import signal
from pathlib import Path

FAIL_AT = "TIDEMARK_FAIL_AT"


def pass_fail_point(point: str) -> None:
    """Mark a fail point: kill the process here if its environment says so."""
    fail_at = os.environ.get(FAIL_AT)
    if fail_at is not None and (
        fail_at == point or (os.sep in fail_at and _claim(Path(fail_at), point))
    ):
        os.kill(os.getpid(), signal.SIGKILL)


def _claim(file: Path, point: str) -> bool:
    """Return whether the file names this point and no other process has deleted it."""
    try:
        if file.read_text() != point:
            return False
        file.unlink()
    except FileNotFoundError:
        return False
    return True
