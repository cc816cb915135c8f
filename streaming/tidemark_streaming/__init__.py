"""Ingest events, run assets as streaming queries, and provide the command line."""
