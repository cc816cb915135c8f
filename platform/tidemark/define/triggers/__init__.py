"""Triggers: when the result of a window is published."""
