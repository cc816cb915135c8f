"""Brokers, topics and registries for tests."""
