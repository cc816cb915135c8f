"""Prepare events: mark duplicates, call the asset's function, and check that it works by row."""
