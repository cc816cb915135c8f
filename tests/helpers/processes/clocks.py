"""A changed system clock, as this process sees it."""

import time
from importlib import import_module

import pytest


def shift_clock(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Set the clock ahead by a number of hours, or back if it is negative."""
    # psutil computes start times of processes from the boot time, so it must move too.
    system = import_module("psutil._pslinux")
    seconds, nanoseconds, boot = time.time, time.time_ns, system.boot_time
    shift = hours * 3600
    monkeypatch.setattr(time, "time", lambda: seconds() + shift)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(shift * 1e9))
    monkeypatch.setattr(system, "boot_time", lambda: boot() + shift)
