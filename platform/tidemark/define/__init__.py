"""Definitions of sources and assets, as plain data that can be read without running anything."""
