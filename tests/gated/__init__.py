"""A domain for tests: readings of which some fail what is expected of them."""
