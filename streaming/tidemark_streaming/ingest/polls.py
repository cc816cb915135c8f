"""Record when a sensor of the orchestrator last polled a source for new files.

A sensor that is off leaves no trace in Tidemark's home; one that is on touches a file at each tick.
"""

import os
from pathlib import Path

from tidemark.base.settings import Settings

STALE = 120.0
"""The seconds after which a poll is stale."""


def note(settings: Settings, source: str) -> None:
    """Record that a sensor polls a source now."""
    file = _file(settings, source)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file)


def recent(settings: Settings, source: str, now: float) -> bool:
    """Return whether a sensor polled a source in the last two minutes.

    Args:
        now: the time, in seconds.
    """
    try:
        return 0 <= now - _file(settings, source).stat().st_mtime <= STALE
    except FileNotFoundError:
        return False


def _file(settings: Settings, source: str) -> Path:
    return settings.home / "polls" / settings.database / source
