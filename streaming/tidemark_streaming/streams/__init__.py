"""Streams: continuous queries, and the supervisor that keeps them running."""
