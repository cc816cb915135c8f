"""Helpers for tests of Dagster."""
