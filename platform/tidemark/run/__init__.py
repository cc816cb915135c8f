"""Runs: `incremental`, `backfill` and `correct`, the only ways in which an asset is computed."""

from tidemark.run.runner import backfill, correct, incremental

__all__ = ["backfill", "correct", "incremental"]
