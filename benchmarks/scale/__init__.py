"""Measure how time, memory and storage grow with the work, and predict a run from that."""
