"""The machine's clock, as one that was set shows it to this process."""

import time
from importlib import import_module

import pytest


def shift_clock(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Set the clock so many hours ahead, or back."""
    # From the machine's start, by its clock, psutil tells when processes began.
    system = import_module("psutil._pslinux")
    seconds, nanoseconds, boot = time.time, time.time_ns, system.boot_time
    shift = hours * 3600
    monkeypatch.setattr(time, "time", lambda: seconds() + shift)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + int(shift * 1e9))
    monkeypatch.setattr(system, "boot_time", lambda: boot() + shift)
