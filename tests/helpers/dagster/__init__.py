"""Dagster in tests."""
