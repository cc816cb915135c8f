"""A domain for tests of monitoring: readings from files, by minute and by hour."""
