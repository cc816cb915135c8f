"""Verify published windows by recomputation, and trace which events they include."""
