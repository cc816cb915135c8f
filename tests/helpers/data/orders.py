"""Two plain sources, from which tests derive joins and unions."""

from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness

ORDERS, PAYMENTS = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "v": "INT"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
