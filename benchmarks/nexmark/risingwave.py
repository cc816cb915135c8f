"""The rows that RisingWave's tests of NEXMark expect, for the few events of these tests.

`risingwave.yaml` has the events and the rows as lines of text, and describes what it omits.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import yaml

from benchmarks.nexmark.peer import Peer, Row
from benchmarks.nexmark.runs import SOURCES
from tidemark.define.source import Source
from tidemark_streaming.files.recording import ARRIVES

DAY = "2015-07-15"
_COUNTS = "total_bids, rank1_bids, rank2_bids, rank3_bids"
_DISTINCT = ", ".join(
    f"{rank}_{column}s"
    for column in ("bidder", "auction")
    for rank in ("total", "rank1", "rank2", "rank3")
)

ROWS: Mapping[str, tuple[str, str]] = {
    "q1": ("auction, bidder, price", "{q1_log}"),
    "q4": ("category, CAST(mean_price AS DECIMAL(38, 2))", "{q4}"),
    "q9": (
        "auction, seller, category, winner[0].bidder, winner[0].price, "
        "substr(winner[0].bid_time, 12)",
        "{q9}",
    ),
    "q14": ("auction, bidder, price, bid_time_type, c_counts", "{q14_log}"),
    "q15": (f"date(window_start), {_COUNTS}, {_DISTINCT}", "{q15}"),
    "q16": (f"channel, date(window_start), {_COUNTS}, {_DISTINCT}", "{q16}"),
    "q17": (
        f"auction, date(window_start), {_COUNTS}, min_price, max_price, "
        "CAST(avg_price AS DECIMAL(38, 3)), sum_price",
        "{q17}",
    ),
    "q18": ("auction, bidder, bid.price", "{q18}"),
    "q19": (
        "auction, e.bidder, e.price, n + 1",
        "(SELECT auction, posexplode(top) AS (n, e) FROM {q19})",
    ),
    "q20": ("auction, bidder, price", "{q20_log}"),
    "q21": ("auction, bidder, price, channel, channel_id", "{q21_log}"),
    "q22": ("auction, bidder, price, channel, dir1, dir2, dir3", "{q22_log}"),
}
"""By query, the columns whose values make up a line of the expected rows, and the table."""


def read_published() -> Peer:
    """Return the events and expected rows of RisingWave's tests."""
    found = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    bids = _frame(found["bids"], "auction bidder price date_time channel folders channel_id extra")
    query = ("&channel_id=" + bids["channel_id"]).where(bids["channel_id"] != "-", "")
    url = "https://www.nexmark.com/" + bids["folders"] + "/item.htm?query=1" + query
    auctions = _frame(found["auctions"], "auction seller category date_time expires")
    frames = [_frame("1000 00:00:00", "id date_time"), auctions, bids.assign(url=url)]
    return Peer(
        name="RisingWave",
        events=[_complete(*each) for each in zip(SOURCES, frames, strict=True)],
        span="5 seconds",
        rows={
            query: f"SELECT concat_ws(' ', {columns}) FROM {table}"
            for query, (columns, table) in ROWS.items()
        },
        results={
            query: Counter[Row]((line,) for line in lines.splitlines())
            for query, lines in found["expected"].items()
        },
    )


def _frame(lines: str, columns: str) -> pd.DataFrame:
    rows = [line.split() for line in lines.splitlines()]
    return pd.DataFrame(rows, columns=pd.Index(columns.split()))


def _complete(source: Source, events: pd.DataFrame) -> pd.DataFrame:
    """Return events with all columns of their source. They arrive in the given order."""
    happened = pd.to_datetime(f"{DAY} " + events["date_time"], format="ISO8601", utc=True)
    delays = pd.to_timedelta(range(len(events)), unit="us")
    if "expires" in events:
        events = events.assign(expires=f"{DAY} " + events["expires"])
    missing = {column: "" for column in source.columns if column not in events}
    events = events.assign(**missing, **{"date_time": happened, ARRIVES: happened + delays})
    return events[[*source.columns, ARRIVES]]
