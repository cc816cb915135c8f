"""Expectations of the rows that an asset publishes: `tm.expect.between("mean_delay", -60, 600)`."""

from tidemark.define.expectations.expectation import ERROR, WARNING, Expectation
from tidemark.define.expectations.general import between, column_greater, not_null, one_of
from tidemark.define.expectations.windowed import (
    late_share_below,
    matches_log,
    max_change_after_close,
    no_gap,
    unique_key,
    volume_within,
)

__all__ = [
    "ERROR",
    "WARNING",
    "Expectation",
    "between",
    "column_greater",
    "late_share_below",
    "matches_log",
    "max_change_after_close",
    "no_gap",
    "not_null",
    "one_of",
    "unique_key",
    "volume_within",
]
