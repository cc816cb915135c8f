"""Queries of the engine: their requests, plans and optimizer rules."""
