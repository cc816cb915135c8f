"""The source of numbered events."""

import os
from pathlib import Path

import tidemark as tm

MORE = "NUMBERED_MORE"
"""The environment variable with the path of a file with the number of additional columns."""


def gained() -> int:
    """Return the number of additional columns of the source."""
    file = Path(os.environ.get(MORE, "nowhere"))
    return int(file.read_text()) if file.exists() else 0


def declared() -> tm.Source:
    """Return the source with its current columns."""
    more = {f"more_{number}": "STRING" for number in range(gained())}
    return tm.Source(
        name="numbers",
        columns={"at": "TIMESTAMP", "n": "BIGINT", **more},
        event_time="at",
        watermark=tm.BoundedOutOfOrderness("5 seconds"),
    )


numbers = declared()
