"""The queries: their definitions, their rows, and the same queries written by hand for Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.nexmark.domain import transforms as t
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource

Step = DerivedSource | Definition

_RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
_COUNTS = ["count(*) AS total_bids", *(f"count_if({w}) AS {r}_bids" for r, w in _RANKS.items())]
_DISTINCT = [
    f"count(DISTINCT {c}) FILTER (WHERE {w}) AS {r}_{c}s"
    for c in ("bidder", "auction")
    for r, w in {"total": "true", **_RANKS}.items()
]
_NAMES = [text.rpartition(" ")[2] for text in (*_COUNTS, *_DISTINCT)]
_COUNTED = [text.rpartition(" ")[2] for text in _COUNTS]
_IN_TIME = "b.date_time BETWEEN a.date_time AND a.expires"


@dataclass(frozen=True)
class Query:
    """A query of the benchmark.

    Args:
        name: the name of the query in NEXMark.
        step: the definition in Tidemark; None if there is none.
        rows: SQL over the tables of Tidemark, which returns the rows that NEXMark defines.
        by_hand: SQL over the sources' event logs, which returns the same rows.
        missing: why there is no definition.
    """

    name: str
    step: Step | None = None
    rows: str = ""
    by_hand: str = ""
    missing: str = ""

    @property
    def steps(self) -> Sequence[Step]:
        """The definitions to run, each after the definitions that it reads."""
        return () if self.step is None else [*{s.name: s for s in _steps(self.step)}.values()]


def _steps(step: Step) -> Iterator[Step]:
    asset = step.derivation.asset if isinstance(step, DerivedSource) else None
    if asset is not None:
        yield from _steps(asset)
    for base in step.base_sources if isinstance(step, DerivedSource) else (step.source,):
        if isinstance(base, DerivedSource):
            yield from _steps(base)
    yield step


_BID = "auction, bidder, price, date_time"
_CHANNEL_ID = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
_NUMBER = (
    "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' "
    f"WHEN 'baidu' THEN '3' ELSE {_CHANNEL_ID} END"
)

QUERIES = (
    Query("q0", t.q0, f"SELECT {_BID} FROM {{q0_log}}", f"SELECT {_BID} FROM {{bids}}"),
    Query(
        "q1",
        t.q1,
        f"SELECT {_BID} FROM {{q1_log}}",
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(22,3)) AS price, date_time "
        "FROM {bids}",
    ),
    Query(
        "q2",
        t.q2,
        "SELECT auction, price FROM {q2_log}",
        "SELECT auction, price FROM {bids} WHERE auction % 123 = 0",
    ),
    Query(
        "q3",
        t.q3,
        "SELECT name, city, state, auction FROM {q3_log}",
        "SELECT p.name, p.city, p.state, a.auction FROM {auctions} a JOIN {persons} p "
        "ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    Query(
        "q4",
        t.q4,
        "SELECT category, mean_price FROM {q4}",
        "SELECT category, avg(price) FROM (SELECT a.auction, a.category, max(b.price) AS price "
        f"FROM {{auctions}} a JOIN {{bids}} b ON a.auction = b.auction AND {_IN_TIME} GROUP BY 1, 2"
        ") GROUP BY category",
    ),
    Query(
        "q5",
        t.q5,
        "SELECT window_start, e.value AS auction, e.count AS num FROM (SELECT window_start, "
        "explode(filter(hot, h -> h.count = hot[0].count)) AS e FROM {q5})",
        "WITH c AS (SELECT window(date_time, '10 seconds', '2 seconds').start AS s, auction, "
        "count(*) AS n FROM {bids} GROUP BY ALL) SELECT c.s, c.auction, c.n FROM c JOIN (SELECT s, "
        "max(n) AS most FROM c GROUP BY s) m ON c.s = m.s AND c.n >= m.most",
    ),
    Query(
        "q6",
        t.q6,
        "SELECT seller, aggregate(prices, 0D, (sum, p) -> sum + p) / size(prices) FROM {q6}",
        "SELECT seller, avg(price) FROM (SELECT seller, price, row_number() OVER (PARTITION BY "
        "seller ORDER BY last_bid DESC) AS n FROM (SELECT a.auction, a.seller, max(b.price) AS "
        "price, max(b.date_time) AS last_bid FROM {auctions} a JOIN {bids} b ON a.auction = "
        f"b.auction AND {_IN_TIME} GROUP BY 1, 2)) WHERE n <= 10 GROUP BY seller",
    ),
    Query(
        "q7",
        t.q7,
        "SELECT e.auction, e.price, e.bidder, e.date_time FROM (SELECT explode(filter(highest, "
        "h -> h.price = highest[0].price)) AS e FROM {q7})",
        "WITH b AS (SELECT *, window(date_time, '10 seconds').start AS s FROM {bids}) SELECT "
        "b.auction, b.price, b.bidder, b.date_time FROM b JOIN (SELECT s, max(price) AS most FROM "
        "b GROUP BY s) m ON b.s = m.s AND b.price = m.most",
    ),
    Query(
        "q8",
        t.q8,
        "SELECT seller AS id, name, window_start FROM {q8}",
        "WITH p AS (SELECT *, window(date_time, '10 seconds').start AS s FROM {persons}), a AS "
        "(SELECT seller, window(date_time, '10 seconds').start AS s FROM {auctions}) SELECT "
        "DISTINCT p.id, p.name, p.s FROM p JOIN a ON p.id = a.seller AND p.s = a.s",
    ),
    Query(
        "q9",
        t.q9,
        "SELECT auction, seller, category, winner[0].bidder, winner[0].price, winner[0].bid_time "
        "FROM {q9}",
        "SELECT auction, seller, category, bidder, price, bid_time FROM (SELECT a.auction, "
        "a.seller, a.category, b.bidder, b.price, b.date_time AS bid_time, row_number() OVER "
        "(PARTITION BY a.auction ORDER BY b.price DESC, b.date_time) AS n FROM {auctions} a JOIN "
        f"{{bids}} b ON a.auction = b.auction AND {_IN_TIME}) WHERE n = 1",
    ),
    Query(
        "q10",
        t.q10,
        f"SELECT {_BID}, date, time FROM {{q10_log}}",
        f"SELECT {_BID}, date_format(date_time, 'yyyy-MM-dd'), date_format(date_time, 'HH:mm') "
        "FROM {bids}",
    ),
    Query(
        "q11",
        t.q11,
        "SELECT bidder, bids, window_start, window_end FROM {q11}",
        "SELECT bidder, count(*), w.start, w.end FROM (SELECT bidder, session_window(date_time, "
        "'10 seconds') AS w FROM {bids}) GROUP BY bidder, w",
    ),
    Query("q12", missing="processing time: no two runs agree"),
    Query(
        "q13",
        t.q13,
        f"SELECT {_BID}, value FROM {{q13_log}}",
        f"SELECT {_BID}, concat('name ', auction % 10000) FROM {{bids}}",
    ),
    Query(
        "q14",
        t.q14,
        f"SELECT {_BID}, bid_time_type, c_counts FROM {{q14_log}}",
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(22,3)), date_time, CASE WHEN "
        "hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(date_time) <= 6 OR "
        "hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END, "
        "length(extra) - length(replace(extra, 'c', '')) FROM {bids} WHERE 0.908 * price > 1000000 "
        "AND 0.908 * price < 50000000",
    ),
    Query(
        "q15",
        t.q15,
        f"SELECT date(window_start), {', '.join(_NAMES)} FROM {{q15}}",
        f"SELECT date(date_time), {', '.join([*_COUNTS, *_DISTINCT])} FROM {{bids}} GROUP BY 1",
    ),
    Query(
        "q16",
        t.q16,
        f"SELECT channel, date(window_start), minute, {', '.join(_NAMES)} FROM {{q16}}",
        "SELECT channel, date(date_time), max(date_format(date_time, 'HH:mm')), "
        f"{', '.join([*_COUNTS, *_DISTINCT])} FROM {{bids}} GROUP BY 1, 2",
    ),
    Query(
        "q17",
        t.q17,
        f"SELECT auction, date(window_start), {', '.join(_COUNTED)}, min_price, max_price, "
        "avg_price, sum_price FROM {q17}",
        f"SELECT auction, date(date_time), {', '.join(_COUNTS)}, min(price), max(price), "
        "avg(price), sum(price) FROM {bids} GROUP BY 1, 2",
    ),
    Query(
        "q18",
        t.q18,
        "SELECT auction, bidder, bid.price, bid.channel, bid.url, bid.date_time, bid.extra "
        "FROM {q18}",
        "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, "
        "row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, arrival DESC, "
        "position DESC) AS n FROM {bids}) WHERE n = 1",
    ),
    Query(
        "q19",
        t.q19,
        "SELECT auction, e.bidder, e.price, e.channel, e.url, e.date_time, e.extra, n + 1 FROM "
        "(SELECT auction, posexplode(top) AS (n, e) FROM {q19})",
        "SELECT auction, bidder, price, channel, url, date_time, extra, n FROM (SELECT *, "
        "row_number() OVER (PARTITION BY auction ORDER BY price DESC, arrival, position) AS n "
        "FROM {bids}) WHERE n <= 10",
    ),
    Query(
        "q20",
        t.q20,
        "SELECT auction, bidder, price, channel, url, bid_time, bid_extra, item_name, description, "
        "initial_bid, reserve, date_time, expires, seller, category, extra FROM {q20_log}",
        "SELECT a.auction, bidder, price, channel, url, b.date_time, b.extra, item_name, "
        "description, initial_bid, reserve, a.date_time, expires, seller, category, a.extra FROM "
        "{bids} b JOIN {auctions} a ON b.auction = a.auction WHERE a.category = 10",
    ),
    Query(
        "q21",
        t.q21,
        "SELECT auction, bidder, price, channel, channel_id FROM {q21_log}",
        f"SELECT auction, bidder, price, channel, {_NUMBER} FROM {{bids}} WHERE {_CHANNEL_ID} IS "
        "NOT NULL OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    ),
    Query(
        "q22",
        t.q22,
        "SELECT auction, bidder, price, channel, dir1, dir2, dir3 FROM {q22_log}",
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), "
        "split_part(url, '/', 6) FROM {bids}",
    ),
)
