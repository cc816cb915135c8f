"""Prepare events: mark duplicates, and call the asset's function after checking how it works."""
