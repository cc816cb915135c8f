"""Identify the process that owns a piece of work, also for processes on other machines."""

import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import psutil

from tidemark.engine.process import has_exited, process_identity


class Process(NamedTuple):
    """Identifies a process of any machine, to determine whether it has exited.

    Args:
        machine: the machine's name.
        space: identifies the space in which `pid` is unique, which is a container or a machine.
        pid: the process ID.
        born: differs from the values of all other processes that have the same ID.
    """

    machine: str
    space: str
    pid: int
    born: str

    @property
    def is_near(self) -> bool:
        """True if this process can see whether the process has exited."""
        return (self.machine, self.space) == (socket.gethostname(), _process_space())

    @property
    def has_exited(self) -> bool:
        """True if the process is near and has exited."""
        if not self.is_near:
            return False
        try:
            # The system may have given the ID to another process since.
            return process_identity(self.pid) != self.born or has_exited(psutil.Process(self.pid))
        except psutil.NoSuchProcess:
            return True


def this_process() -> Process:
    pid = os.getpid()
    return Process(socket.gethostname(), _process_space(), pid, process_identity(pid))


@lru_cache
def _process_space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        # Not Linux: process IDs are unique on the whole machine.
        return ""


@dataclass(frozen=True)
class Owner:
    """Identifies the owner of a piece of work, which no other process may do.

    Args:
        name: describes the owner for users.
        process: the owning process; None if the owner lives longer than its processes.
        hold: identifies the piece of work in that process, which may own the same work once more
            after it has lost it.
    """

    name: str
    process: Process | None = None
    hold: str = ""

    def __str__(self) -> str:
        if self.process is not None and self.process.is_near:
            return f"process {self.process.pid}"
        return self.name
