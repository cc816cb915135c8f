"""Ingest arrivals and run continuously: connectors, ingest, streaming queries, the command line."""
