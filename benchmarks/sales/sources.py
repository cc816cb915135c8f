"""The source of the sales."""

import tidemark as tm

sales = tm.Source(
    name="sales",
    columns={"at": "TIMESTAMP", "shop": "STRING", "amount": "DOUBLE"},
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("2 seconds"),
)
