"""The transform of the domain: sums of integers."""

from dataclasses import replace

import tidemark as tm
from helpers.data import support

sums = replace(
    support.PER_MINUTE,
    name="sums",
    aggregates={"total": tm.agg.sum("CAST(value AS BIGINT) * 1000000000000000000")},
)
