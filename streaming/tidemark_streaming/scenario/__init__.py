"""Scenarios: the arrivals, the transform and the expected result of a small test, in a text file.

`parse.load` reads a scenario, `simulate` runs it, `compare` reports how the result differs from the
expected one, and `draw` renders both as a picture. Only `simulate` needs an engine.
"""
