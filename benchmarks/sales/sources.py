"""The source of the sales."""

from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

sales = Source(
    name="sales",
    columns={"at": "TIMESTAMP", "shop": "STRING", "amount": "DOUBLE"},
    event_time="at",
    watermark=BoundedOutOfOrderness("2 seconds"),
)
