"""The protocol of sinks: systems that get the panes of an asset in addition to its tables.

`tidemark_streaming.sink` implements them. The computed results do not depend on the sink, so it is
not part of a definition's fingerprint.
"""

from abc import ABC, abstractmethod


class Sink(ABC):
    """The base class of sinks, to which the panes of an asset are published."""

    @abstractmethod
    def __str__(self) -> str:
        """Return a readable description of the sink, without a secret."""
