"""Quality gates: what is expected of the rows that a run is about to publish.

Expectations are declared with a transform and judged in backfills, incremental and continuous runs
alike, on the rows about to be published. A row that fails one of level `error` goes to quarantine
instead; every other row is published. Every judgement is a row of the table `checks`.

A run's part of it is `gate`; `quarantine` has what a person does about a row that is withheld.
"""

from tidemark.define.expectations.expectation import ERROR, WARNING, Expectation
from tidemark.define.expectations.general import between, greater, not_null, one_of
from tidemark.define.expectations.windowed import (
    calm,
    complete,
    late_share_below,
    no_gap,
    unique,
    volume_within,
)

__all__ = [
    "ERROR",
    "WARNING",
    "Expectation",
    "between",
    "calm",
    "complete",
    "greater",
    "late_share_below",
    "no_gap",
    "not_null",
    "one_of",
    "unique",
    "volume_within",
]
