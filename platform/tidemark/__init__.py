"""Windowed aggregations over event logs.

Events are ingested in numbered groups, the arrivals. A run processes a range of arrivals; a batch
run is a run whose range has an end.
"""

__version__ = "0.1.0"
