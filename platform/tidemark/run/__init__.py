"""Runs: `incremental`, `backfill` and `correct`, the only functions that compute an asset."""

from tidemark.run.runner import backfill, correct, incremental

__all__ = ["backfill", "correct", "incremental"]
