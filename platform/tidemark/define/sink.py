"""Outlets: sinks for the panes of an asset, in addition to its tables, if its definition has one.

The platform only knows that outlets exist; `tidemark_streaming.sink` implements them. The
computed results do not depend on the outlet, so it is not part of a definition's fingerprint.
"""

from abc import ABC, abstractmethod


class Sink(ABC):
    """A sink for the panes of an asset."""

    @abstractmethod
    def __str__(self) -> str:
        """Return a readable description of the sink, without a secret."""
