"""Quality gates: validate the rows that a run is about to publish.

Expectations are declared with a transform. All runs (backfill, incremental or continuous) validate
the rows that they are about to publish. A row that fails an expectation of level `error` goes to
quarantine; every other row is published. Every result is a row of the table `checks`.

A run calls the module `gate`. The module `quarantine` implements the commands for quarantined rows.
"""

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
