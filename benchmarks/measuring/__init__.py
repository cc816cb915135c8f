"""Measure engines, time, memory, and results."""
