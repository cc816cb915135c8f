"""Faults of the engine that are planted in tests."""

from functools import cached_property

import pytest
from pyspark.sql import DataFrame

from tidemark.quality.evidence import Batch
from tidemark.store.rows import Rows


def lose_recount(monkeypatch: pytest.MonkeyPatch, seq: int, times: int) -> None:
    """The recount of one commit finds nothing in the log, the first so many times."""
    recount, done = Batch._recounted.func, 0

    def planted(batch: Batch) -> Rows:
        nonlocal done
        rows = recount(batch)
        if batch.marker.seq != seq or done == times:
            return rows
        done += 1
        assert not isinstance(rows, DataFrame)
        return rows.slice(0, 0)

    found = cached_property(planted)
    found.__set_name__(Batch, "_recounted")
    monkeypatch.setattr(Batch, "_recounted", found)
