"""The progress of sources and assets, read from the tables without the engine.

The command line, the metrics, the live page, and Dagster's sensors and checks use this package.
"""
