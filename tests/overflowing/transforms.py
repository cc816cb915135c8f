"""The transform of the domain: sums of integers."""

from dataclasses import replace

from helpers.data import support
from tidemark import aggregate as agg

sums = replace(
    support.PER_MINUTE,
    name="sums",
    aggregates={"total": agg.sum("CAST(value AS BIGINT) * 1000000000000000000")},
)
