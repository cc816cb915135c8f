"""Secrets, as definitions name them."""

from tidemark.base.secret import Secret, secret

__all__ = ["Secret", "secret"]
