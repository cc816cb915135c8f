"""A domain for tests of scenarios."""
