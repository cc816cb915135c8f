"""Secrets for definitions: `from tidemark.secret import secret`."""

from tidemark.base.secret import Secret, secret

__all__ = ["Secret", "secret"]
