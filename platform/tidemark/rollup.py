"""Roll-ups, as definitions name them."""

from tidemark.define.rollup import RollUp, rollup

__all__ = ["RollUp", "rollup"]
