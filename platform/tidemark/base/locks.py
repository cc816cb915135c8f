"""Locks of this machine that end with the process which has them, however it ends.

Whoever looks whether one is held shares it with all others who look, for that instant; so who wants
it, and finds that it could be shared, asks again.
"""

import fcntl
import os
import random
import time
from pathlib import Path

_MOMENT = 0.02
"""Seconds at most between two tries: a look at a lock takes microseconds."""

_PATIENCE = 10.0
"""Seconds to wait for those who look: on a busy machine one may stand still amid its look."""


def take(handle: int) -> bool:
    """Take the lock of an open file; False where another process has it."""
    deadline = time.monotonic() + _PATIENCE
    while not _locked(handle, fcntl.LOCK_EX):
        if not _locked(handle, fcntl.LOCK_SH):
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)
        if time.monotonic() > deadline:
            return False
        # Two that want it share it in turn, and must not do so in step.
        time.sleep(random.uniform(0, _MOMENT))
    return True


def held(path: Path) -> bool:
    """Whether a process has the lock of a file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
