"""Roll-ups for definitions: `from tidemark.rollup import rollup`."""

from tidemark.define.rollup import RollUp, rollup

__all__ = ["RollUp", "rollup"]
