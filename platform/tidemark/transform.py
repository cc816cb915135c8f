"""The definition that users write."""

from tidemark.define.transform import WindowedTransform, windowed_asset

__all__ = ["WindowedTransform", "windowed_asset"]
