"""A domain for tests of watching: readings that come as files, by minute and by hour."""
