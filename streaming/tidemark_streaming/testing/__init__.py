"""Tests of users' transforms: a small engine, given arrivals, and what comes out in any cut.

`plugin` has the fixtures and is all that needs pytest; a project that uses none of them pays
nothing for it.
"""
