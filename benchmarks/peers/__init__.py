"""Peers of Tidemark: hand-written queries and other engines."""
