"""The queries of NEXMark, each as a definition.

A query that maps and filters is a row asset, and a query that joins is a join. The rows of both are
in the table `<name>_log`. All other queries are windowed assets. Queries that aggregate over
all of time have the window `Global`, which closes when the stream ends, and publish after each
arrival until then.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidemark as tm
from benchmarks.nexmark.domain.sources import auctions, bids, persons

SO_FAR = tm.Trigger(early=tm.EachArrival())
EURO = "CAST(0.908 * price AS DECIMAL(22,3))"
LONGEST_AUCTION = "5 minutes"
MANY = 100_000
"""Maximum number of distinct values that an exact count keeps."""

BID = {"auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "date_time": "TIMESTAMP"}
BID_IN_EUROS = {**BID, "price": "DECIMAL(22,3)"}
BID_BY_CHANNEL = {**BID, "channel": "STRING"}
RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
COUNTS = {"total_bids": tm.agg.count()} | {
    f"{rank}_bids": tm.agg.count(where=where) for rank, where in RANKS.items()
}
DISTINCT_COUNTS = {
    f"{rank}_{column}s": tm.agg.count_distinct(column, where, max_values=MANY)
    for column in ("bidder", "auction")
    for rank, where in {"total": None, **RANKS}.items()
}


@tm.row_asset(source=bids, columns=BID)
def q0(bids: DataFrame) -> DataFrame:
    """Pass each bid through."""
    return bids


@tm.row_asset(source=bids, columns=BID_IN_EUROS)
def q1(bids: DataFrame) -> DataFrame:
    """Convert the price of each bid from dollars to euros."""
    return bids.withColumn("price", F.expr(EURO))


@tm.row_asset(
    source=bids, columns={"auction": "BIGINT", "price": "BIGINT", "date_time": "TIMESTAMP"}
)
def q2(bids: DataFrame) -> DataFrame:
    """Select the bids of some auctions."""
    return bids.where("auction % 123 = 0")


@tm.row_asset(
    source=persons,
    columns={
        "seller": "BIGINT",
        "name": "STRING",
        "city": "STRING",
        "state": "STRING",
        "date_time": "TIMESTAMP",
    },
)
def sellers(persons: DataFrame) -> DataFrame:
    """Rename the column `id` of persons to `seller`, as in auctions."""
    return persons.withColumnRenamed("id", "seller")


q3 = tm.join(
    name="q3",
    left=auctions,
    right=sellers,
    on=["seller"],
    within=tm.Between("-1 day", "1 day"),
    where="l.category = 10 AND r.state IN ('OR', 'ID', 'CA')",
    rename={"sellers.date_time": "registered_at"},
)
"""Who sells in some states and one category?

The join finds only persons who registered at most a day before or after the auction.
"""

auction_bids = tm.join(
    name="auction_bids",
    left=auctions,
    right=bids,
    on=["auction"],
    within=tm.Between("0 seconds", LONGEST_AUCTION),
    where="r.date_time <= l.expires",
    rename={"bids.date_time": "bid_time", "bids.extra": "bid_extra"},
)
"""The bids that were made before their auction expired, each with its auction."""


@tm.windowed_asset(
    source=bids,
    window=tm.Sliding("10 seconds", "2 seconds"),
    aggregates={"hot": tm.agg.top_k("auction", 50)},
)
def q5(bids: DataFrame) -> DataFrame:
    """Which auctions have the most bids in the last ten seconds? Several may be tied."""
    return bids


@tm.windowed_asset(
    source=bids,
    window=tm.Tumbling("10 seconds"),
    aggregates={
        "highest": tm.agg.top_n("struct(auction, price, bidder, date_time)", 10, by="price")
    },
)
def q7(bids: DataFrame) -> DataFrame:
    """What are the highest bids of each ten seconds? Several may have the same price."""
    return bids


new_sellers = tm.join(
    name="new_sellers",
    left=sellers,
    right=auctions,
    on=["seller"],
    within=tm.Tumbling("10 seconds"),
    rename={"auctions.date_time": "opened_at"},
)
"""Persons with an auction in the ten seconds in which they registered."""


@tm.windowed_asset(
    source=new_sellers,
    keys=["seller", "name"],
    window=tm.Tumbling("10 seconds"),
    aggregates={"auctions": tm.agg.count()},
)
def q8(new_sellers: DataFrame) -> DataFrame:
    """Who opens an auction in the ten seconds in which they register?"""
    return new_sellers


@tm.windowed_asset(
    source=auction_bids,
    keys=["auction", "seller", "category"],
    # No auction takes longer, so each has one session.
    window=tm.Session(LONGEST_AUCTION),
    aggregates={
        "winner": tm.agg.top_n(
            "struct(bidder, price, bid_time)", 1, by="struct(price, -unix_micros(bid_time))"
        )
    },
)
def q9(auction_bids: DataFrame) -> DataFrame:
    """What is the winning bid of each auction? Of two equal bids, it is the earlier one."""
    return auction_bids


closed_auctions = tm.chain(
    name="closed_auctions",
    of=q9,
    types={"winner": "ARRAY<STRUCT<bidder: BIGINT, price: BIGINT, bid_time: TIMESTAMP>>"},
)
"""The auctions that no further bid can change, with the winning bid."""


@tm.windowed_asset(
    source=closed_auctions,
    keys=["category"],
    window=tm.Global(),
    trigger=SO_FAR,
    aggregates={"mean_price": tm.agg.mean("winner[0].price")},
)
def q4(closed_auctions: DataFrame) -> DataFrame:
    """What is the mean price of closed auctions, by category?"""
    return closed_auctions


@tm.windowed_asset(
    source=closed_auctions,
    keys=["seller"],
    window=tm.Global(),
    trigger=SO_FAR,
    aggregates={"prices": tm.agg.last_n("winner[0].price", 10)},
)
def q6(closed_auctions: DataFrame) -> DataFrame:
    """What are the prices of the last ten closed auctions of each seller?"""
    return closed_auctions


@tm.row_asset(source=bids, columns={**BID, "date": "STRING", "time": "STRING"})
def q10(bids: DataFrame) -> DataFrame:
    """Write all bids to files, with their day and minute."""
    return bids.withColumns(
        {
            "date": F.date_format("date_time", "yyyy-MM-dd"),
            "time": F.date_format("date_time", "HH:mm"),
        }
    )


@tm.windowed_asset(
    source=bids,
    keys=["bidder"],
    window=tm.Session("10 seconds"),
    aggregates={"bids": tm.agg.count()},
)
def q11(bids: DataFrame) -> DataFrame:
    """How many bids does a person make in each session of activity?"""
    return bids


@tm.row_asset(source=bids, columns={**BID, "value": "STRING"})
def q13(bids: DataFrame, channel_names: DataFrame) -> DataFrame:
    """Join each bid with a table: the bounded side input."""
    return bids.join(channel_names, bids["auction"] % 10_000 == channel_names["key"])


@tm.row_asset(source=bids, columns={**BID_IN_EUROS, "bid_time_type": "STRING", "c_counts": "INT"})
def q14(bids: DataFrame) -> DataFrame:
    """Select bids by their price in euros, and compute the time of day and a count of letters."""
    hour = F.hour("date_time")
    return bids.withColumns(
        {
            "price": F.expr(EURO),
            "bid_time_type": F.when(hour.between(8, 18), "dayTime")
            .when((hour <= 6) | (hour >= 20), "nightTime")
            .otherwise("otherTime"),
            "c_counts": F.expr("length(extra) - length(replace(extra, 'c', ''))"),
        }
    ).where("price > 1000000 AND price < 50000000")


@tm.windowed_asset(
    source=bids,
    window=tm.Calendar("day"),
    trigger=SO_FAR,
    aggregates=COUNTS | DISTINCT_COUNTS,
)
def q15(bids: DataFrame) -> DataFrame:
    """How many bids, bidders and auctions does a day have, by class of price?"""
    return bids


@tm.windowed_asset(
    source=bids,
    keys=["channel"],
    window=tm.Calendar("day"),
    trigger=SO_FAR,
    aggregates={"minute": tm.agg.max("date_format(date_time, 'HH:mm')")} | COUNTS | DISTINCT_COUNTS,
)
def q16(bids: DataFrame) -> DataFrame:
    """How many bids, bidders and auctions does a channel have in a day, by class of price?"""
    return bids


@tm.windowed_asset(
    source=bids,
    keys=["auction"],
    window=tm.Calendar("day"),
    trigger=SO_FAR,
    aggregates={
        **COUNTS,
        "min_price": tm.agg.min("price"),
        "max_price": tm.agg.max("price"),
        "avg_price": tm.agg.mean("price"),
        "sum_price": tm.agg.sum("price"),
    },
)
def q17(bids: DataFrame) -> DataFrame:
    """How many bids does an auction have in a day, and at which prices?"""
    return bids


@tm.windowed_asset(
    source=bids,
    keys=["bidder", "auction"],
    window=tm.Global(),
    trigger=SO_FAR,
    aggregates={"bid": tm.agg.last("struct(price, channel, url, date_time, extra)")},
)
def q18(bids: DataFrame) -> DataFrame:
    """What is the last bid of each person in each auction?"""
    return bids


@tm.windowed_asset(
    source=bids,
    keys=["auction"],
    window=tm.Global(),
    trigger=SO_FAR,
    aggregates={
        "top": tm.agg.top_n("struct(bidder, price, channel, url, date_time, extra)", 10, by="price")
    },
)
def q19(bids: DataFrame) -> DataFrame:
    """What are the ten highest bids of each auction?"""
    return bids


q20 = tm.join(
    name="q20",
    left=auctions,
    right=bids,
    on=["auction"],
    within=tm.Between("-1 day", "1 day"),
    where="l.category = 10",
    rename={"bids.date_time": "bid_time", "bids.extra": "bid_extra"},
)
"""The bids for auctions of one category, each with its auction, within a day of each other."""


@tm.row_asset(source=bids, columns={**BID_BY_CHANNEL, "channel_id": "STRING"})
def q21(bids: DataFrame) -> DataFrame:
    """Add the channel's ID, from the channel's name or the bid's URL; drop bids without an ID."""
    number = F.expr(
        "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' "
        "WHEN 'baidu' THEN '3' "
        "ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END"
    )
    return bids.withColumn("channel_id", number).where("channel_id IS NOT NULL")


@tm.row_asset(
    source=bids, columns={**BID_BY_CHANNEL, **dict.fromkeys(("dir1", "dir2", "dir3"), "STRING")}
)
def q22(bids: DataFrame) -> DataFrame:
    """Split the address of each bid into its folders."""
    parts = F.split("url", "/")
    return bids.withColumns({f"dir{n}": F.get(parts, F.lit(n + 2)) for n in (1, 2, 3)})
