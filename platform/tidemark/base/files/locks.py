"""Lock files on this machine. When a process exits for any reason, its locks are released.

`is_locked` checks a lock by sharing it for an instant. During that instant, another process can't
take the lock. `take_lock` therefore retries as long as it can share the lock.
"""

import fcntl
import os
import random
import time
from pathlib import Path

_MOMENT = 0.02
"""Maximum number of seconds between two attempts; a check takes microseconds."""

_PATIENCE = 10.0
"""Seconds to wait for checks by other processes, which may pause on a busy machine."""


def take_lock(handle: int) -> bool:
    """Take the lock of an open file.

    Return False if another process holds the lock, or if others still share it after `_PATIENCE`
    seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while not try_take_lock(handle):
        if not share_lock(handle):
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)
        if time.monotonic() > deadline:
            return False
        # The pause is random: if two processes retried in step, each would always find the lock
        # shared by the other.
        time.sleep(random.uniform(0, _MOMENT))
    return True


def wait_and_take(handle: int) -> None:
    """Take the lock of an open file as soon as no other process holds it."""
    fcntl.flock(handle, fcntl.LOCK_EX)


def try_take_lock(handle: int) -> bool:
    """Take the lock of an open file. Return False if another process holds or shares it."""
    return _try_lock(handle, fcntl.LOCK_EX)


def share_lock(handle: int) -> bool:
    """Share the lock of an open file. Return False if another process holds it."""
    return _try_lock(handle, fcntl.LOCK_SH)


def is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not share_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int, operation: int) -> bool:
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
