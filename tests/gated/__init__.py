"""A domain for tests: readings, some of which fail their expectations."""
