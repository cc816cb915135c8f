"""Sources for definitions: `from tidemark.source import Source`."""

from tidemark.define.protection import Drop, Mask, Tokenize
from tidemark.define.source import Source

__all__ = ["Drop", "Mask", "Source", "Tokenize"]
