"""The source of orders."""

import tidemark as tm

orders = tm.Source(
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
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
    mask={
        "email": tm.Tokenize(),
        "card": tm.Mask(keep_last=4),
        "ssn": tm.Drop(),
        "kafka_key": tm.Tokenize(),
    },
)
