"""Expectations: conditions that rows must meet before a run publishes them."""
