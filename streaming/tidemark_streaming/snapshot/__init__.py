"""One snapshot of how far each source and asset is, read from the tables without the engine.

The command line, the metrics, the live page, and Dagster's sensors and checks all ask it.
"""
