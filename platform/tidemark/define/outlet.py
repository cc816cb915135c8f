"""Outlets: where the panes of an asset go beside its tables, by choice of its definition.

The platform knows that there are outlets, and none of them: what one is, and how panes get there,
is the business of who brings them out (`tidemark_streaming.outbox`). What is computed does not
depend on it, so it is no part of a definition's fingerprint.
"""

from abc import ABC, abstractmethod


class Outlet(ABC):
    """Where the panes of an asset go."""

    @abstractmethod
    def __str__(self) -> str:
        """What it is, readable and without a secret."""
