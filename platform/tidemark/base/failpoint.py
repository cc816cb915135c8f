"""Fail points: where a process can be killed on purpose, to see what it leaves.

A process with `TIDEMARK_FAIL_AT=<point>` is killed just before that point. Where the variable is
the path of a file, that file names the point, and is gone afterwards: of processes that share it,
one is killed once.
"""

import os
import signal
from pathlib import Path

FAIL_AT = "TIDEMARK_FAIL_AT"


def reach(point: str) -> None:
    """A fail point: the process ends here, without a farewell, where its environment says so."""
    told = os.environ.get(FAIL_AT)
    if told is not None and (told == point or (os.sep in told and _taken(Path(told), point))):
        os.kill(os.getpid(), signal.SIGKILL)


def _taken(file: Path, point: str) -> bool:
    """Whether the file names this point, and nobody took it away before."""
    try:
        if file.read_text() != point:
            return False
        file.unlink()
    except FileNotFoundError:
        return False
    return True
