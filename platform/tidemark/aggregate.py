"""Aggregates for definitions: `from tidemark import aggregate as agg`."""

from tidemark.define.aggregates import (
    Aggregate,
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    min,
    python,
    quantile,
    stddev,
    sum,
    top_k,
    variance,
)

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "python",
    "quantile",
    "stddev",
    "sum",
    "top_k",
    "variance",
]
