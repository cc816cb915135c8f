"""Definitions: plain data that can be read without running anything."""
