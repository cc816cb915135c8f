"""The source of the events: their columns, event time and watermark."""

import tidemark as tm

orders = tm.Source(
    name="orders",
    columns={
        "ordered_at": "TIMESTAMP",
        "city": "STRING",
        "amount": "DOUBLE",
    },
    event_time="ordered_at",
    # The watermark is ten minutes behind the newest event time. Windows that end before it are
    # published, and an event of such a window is late.
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
    # An event more than an hour ahead of its arrival is an error: it goes to the late tables and
    # does not advance the watermark.
    max_future_skew="1 hour",
)
