"""Tidemark in Dagster: definitions built from transforms, and one subpackage per domain."""
