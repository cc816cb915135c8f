"""Expectations for definitions."""
