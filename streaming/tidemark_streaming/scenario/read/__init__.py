"""Read a scenario file."""
