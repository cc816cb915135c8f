"""Bringing arrivals in and keeping runs going: feeds, ingest, continuous queries, the CLI."""
