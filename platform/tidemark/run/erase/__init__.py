"""Erase a person's events: search for them, delete them, recompute their windows, and report."""
