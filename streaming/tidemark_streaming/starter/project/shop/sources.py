"""The events: what they look like, when they happened, and how late they may come."""

from tidemark.source import Source
from tidemark.watermark import BoundedOutOfOrderness

orders = Source(
    name="orders",
    columns={
        "ordered_at": "TIMESTAMP",
        "city": "STRING",
        "amount": "DOUBLE",
    },
    event_time="ordered_at",
    # Time has come as far as the newest event says, less ten minutes: windows that ended before
    # are published, and an event of such a window is late.
    watermark=BoundedOutOfOrderness("10 minutes"),
    # An event dated more than an hour after its arrival is a mistake: it goes to the late tables,
    # and does not move the watermark.
    max_future_skew="1 hour",
)
