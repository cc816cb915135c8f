"""Faults of the engine that tests inject."""

import pytest
from pyspark.sql import DataFrame

from tidemark.quality.evidence import Batch
from tidemark.store.rows import Rows


def lose_recount(monkeypatch: pytest.MonkeyPatch, commit_number: int, times: int) -> None:
    """Let the first recounts of one commit find no rows in the event log."""
    recount, done = Batch._count_again, 0

    def planted(batch: Batch) -> Rows:
        nonlocal done
        rows = recount(batch)
        if batch.commit_info.commit_number != commit_number or done == times:
            return rows
        done += 1
        assert not isinstance(rows, DataFrame)
        return rows.slice(0, 0)

    monkeypatch.setattr(Batch, "_count_again", planted)
