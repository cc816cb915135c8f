"""The monitoring service: metrics for Prometheus and a live page.

It is a separate process, started by `tidemark up`, that never queries the engine: it reads only new
commits of the Delta tables. Monitoring costs a stream nothing and works while the engine is down.
"""
