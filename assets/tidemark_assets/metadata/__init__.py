"""Metadata of assets and materializations."""
