"""Locks of this machine that end with the process which has them, however it ends.

Whoever looks whether one is held has it himself for that instant; so who wants it asks again.
"""

import fcntl
import os
import time
from pathlib import Path

_TRIES, _MOMENT = 10, 0.02
"""How often a lock is asked for, and the seconds between: a look at it takes microseconds."""


def take(handle: int) -> bool:
    """Take the lock of an open file; False where another process has it."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_MOMENT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def held(path: Path) -> bool:
    """Whether a process has the lock of a file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
