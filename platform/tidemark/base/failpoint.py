"""Provide fail points, at which tests kill a process to check the state that the process leaves.

A process with `TIDEMARK_FAIL_AT=<point>` kills itself when it reaches that point. The variable may
also be the path of a file that contains the name of the point. The first process that reaches the
point deletes the file. Of all processes that share the file, exactly one is therefore killed.
"""

import os
import signal
from pathlib import Path

FAIL_AT = "TIDEMARK_FAIL_AT"


def pass_fail_point(point: str) -> None:
    """Kill this process if `TIDEMARK_FAIL_AT` selects this fail point; otherwise do nothing."""
    fail_at = os.environ.get(FAIL_AT)
    if fail_at is not None and (
        fail_at == point or (os.sep in fail_at and _claim_point(Path(fail_at), point))
    ):
        os.kill(os.getpid(), signal.SIGKILL)


def _claim_point(file: Path, point: str) -> bool:
    """Delete the file if it names this point. Return whether this process has deleted it."""
    try:
        if file.read_text() != point:
            return False
        file.unlink()
    except FileNotFoundError:
        return False
    return True
