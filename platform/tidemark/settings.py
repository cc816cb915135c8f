"""Settings, for who opens a warehouse in a program."""

from tidemark.base.settings import Settings

__all__ = ["Settings"]
