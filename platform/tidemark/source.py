"""Sources for definitions."""

from tidemark.define.protection import Drop, Mask, Tokenise
from tidemark.define.source import Source

__all__ = ["Drop", "Mask", "Source", "Tokenise"]
