"""The results of other implementations of NEXMark, for their own events."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import DataFrame

from benchmarks.nexmark.runs import SPAN

Row = tuple[object, ...]


@dataclass(frozen=True)
class Peer:
    """The events and results of another implementation.

    Args:
        name: the name of the implementation in the table.
        events: the persons, auctions and bids, with the columns of the sources and `arrives`.
        rows: by query, SQL over the tables of Tidemark with the columns of the result.
        results: by query, the rows of the implementation, with the count of each.
        span: the time that each arrival covers, for example "5 minutes".
    """

    name: str
    events: Sequence[pd.DataFrame]
    rows: Mapping[str, str]
    results: Mapping[str, Counter[Row]]
    span: str = SPAN

    def count_differing(self, query: str, rows: DataFrame) -> int:
        """Return the number of rows that only Tidemark has, plus those that only the peer has."""
        found, expected = Counter(tuple(row) for row in rows.collect()), self.results[query]
        return ((found - expected) + (expected - found)).total()
