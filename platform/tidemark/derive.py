"""Sources that are computed from other sources: joins, unions, row assets, chains of assets."""

from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union

__all__ = ["Between", "DerivedSource", "chain", "join", "row_asset", "union"]
