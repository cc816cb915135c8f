"""Verify published windows by recomputation, and explain their content."""
