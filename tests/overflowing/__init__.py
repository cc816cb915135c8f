"""A domain for tests: readings whose sums can exceed their type."""
