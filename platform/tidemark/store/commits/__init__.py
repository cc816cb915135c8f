"""Describe commits: the arrivals, the windows, and the ranges of event time that they cover."""
