"""A domain for tests: orders of which some columns are not to be known."""
