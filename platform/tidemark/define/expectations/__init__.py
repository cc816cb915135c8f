"""Expectations, as definitions name them."""
