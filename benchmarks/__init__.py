"""Measure Tidemark's speed relative to peers that are measured in the same run."""
