"""Run an asset: process new arrivals, backfill a range of windows, or correct late loss."""

from tidemark.run.runner import backfill, correct, incremental

__all__ = ["backfill", "correct", "incremental"]
