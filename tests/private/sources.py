"""The source of orders."""

from tidemark.source import Drop, Mask, Source, Tokenize
from tidemark.watermark import BoundedOutOfOrderness

orders = Source(
    name="orders",
    columns={
        "ordered_at": "TIMESTAMP",
        "city": "STRING",
        "amount": "DOUBLE",
        "email": "STRING",
        "card": "STRING",
        "ssn": "BIGINT",
        "kafka_key": "STRING",
    },
    event_time="ordered_at",
    watermark=BoundedOutOfOrderness("10 minutes"),
    mask={
        "email": Tokenize(),
        "card": Mask(keep_last=4),
        "ssn": Drop(),
        "kafka_key": Tokenize(),
    },
)
