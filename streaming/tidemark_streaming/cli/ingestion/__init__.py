"""Commands for ingestion."""
