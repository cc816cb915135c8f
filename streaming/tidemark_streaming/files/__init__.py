"""Files that land in a folder, as a way in."""

from tidemark_streaming.files.feed import FileFeed

__all__ = ["FileFeed"]
