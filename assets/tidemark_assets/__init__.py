"""Tidemark in Dagster: definitions built from transforms, and one sub-package per domain."""
