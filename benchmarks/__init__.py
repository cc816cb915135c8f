"""Measure Tidemark's speed relative to other programs (peers) that run in the same session."""
