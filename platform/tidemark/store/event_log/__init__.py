"""Event logs: the arrivals of a source, in order."""
