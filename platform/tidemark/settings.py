"""Settings for programs that open a warehouse."""

from tidemark.base.settings import Settings

__all__ = ["Settings"]
