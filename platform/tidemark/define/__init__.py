"""Definitions: plain data, which nobody has to run anything to read."""
