"""Ingest arrivals and keep runs going: connectors, ingest, continuous queries, the command line."""
