"""Scenarios: a stream in a text file, with what is computed over it and what must come out.

`parse.load` reads one, `compare` tells how a result differs from what was expected, and `draw`
pictures it. Nothing here needs an engine.
"""
