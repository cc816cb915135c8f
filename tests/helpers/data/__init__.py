"""Domains, logs and tables for tests."""
