"""The numbered events."""

from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

numbers = Source(
    name="numbers",
    columns={"at": "TIMESTAMP", "n": "BIGINT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("5 seconds"),
)
