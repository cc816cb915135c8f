"""A domain for tests: orders with masked columns."""
