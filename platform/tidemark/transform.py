"""Windowed transforms, the definition that users write."""

from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform, windowed_asset

__all__ = ["Definition", "WindowedTransform", "windowed_asset"]
