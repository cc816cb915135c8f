"""The numbered events."""

import os
from pathlib import Path

from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

MORE = "NUMBERED_MORE"
"""A variable: the file that says how many columns the source has gained."""


def gained() -> int:
    """How many columns the source has gained."""
    file = Path(os.environ.get(MORE, "nowhere"))
    return int(file.read_text()) if file.exists() else 0


def declared() -> Source:
    """The source, with the columns that it has by now."""
    more = {f"more_{number}": "STRING" for number in range(gained())}
    return Source(
        name="numbers",
        columns={"at": "TIMESTAMP", "n": "BIGINT", **more},
        event_time="at",
        watermark=BoundedOutOfOrderness("5 seconds"),
    )


numbers = declared()
