"""Ingest: append the arrivals of a connector to the event log of its source."""
