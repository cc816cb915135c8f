"""Windowed aggregations over event logs: a run processes a range of arrivals, and a batch is a run
whose range has an end.
"""

__version__ = "0.1.0"
