"""Secrets for definitions."""

from tidemark.base.secret import Secret, secret

__all__ = ["Secret", "secret"]
