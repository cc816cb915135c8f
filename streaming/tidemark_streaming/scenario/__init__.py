"""Scenarios: the arrivals, the transform and the expected result of a small test, in a text file.

`parse.load` reads a scenario, `compare` reports how a result differs from the expected one, and
`draw` renders it as a picture. Nothing here needs an engine.
"""
