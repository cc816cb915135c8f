"""The sources of NEXMark: persons register, open auctions, and bid."""

import tidemark as tm

BOUND = tm.BoundedOutOfOrderness("4 seconds")
"""The bound of the published queries."""

persons = tm.Source(
    name="persons",
    columns={
        "id": "BIGINT",
        "name": "STRING",
        "email_address": "STRING",
        "credit_card": "STRING",
        "city": "STRING",
        "state": "STRING",
        "date_time": "TIMESTAMP",
        "extra": "STRING",
    },
    event_time="date_time",
    watermark=BOUND,
)
auctions = tm.Source(
    name="auctions",
    columns={
        "auction": "BIGINT",
        "item_name": "STRING",
        "description": "STRING",
        "initial_bid": "BIGINT",
        "reserve": "BIGINT",
        "date_time": "TIMESTAMP",
        "expires": "TIMESTAMP",
        "seller": "BIGINT",
        "category": "BIGINT",
        "extra": "STRING",
    },
    # Joins need one name for the key.
    rename={"id": "auction"},
    event_time="date_time",
    watermark=BOUND,
)
bids = tm.Source(
    name="bids",
    columns={
        "auction": "BIGINT",
        "bidder": "BIGINT",
        "price": "BIGINT",
        "channel": "STRING",
        "url": "STRING",
        "date_time": "TIMESTAMP",
        "extra": "STRING",
    },
    event_time="date_time",
    watermark=BOUND,
    lookups=("channel_names",),
)
