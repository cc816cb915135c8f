"""Ingest arrivals and keep runs going: feeds, ingest, continuous queries, the command line."""
