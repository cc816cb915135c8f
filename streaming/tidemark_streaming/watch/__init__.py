"""Watching: metrics for Prometheus and a live page, beside the services that `tidemark up` starts.

A process of its own, which never asks the engine: it reads the Delta tables, what has changed of
them, so that watching costs a stream nothing and goes on when the engine is gone.
"""
