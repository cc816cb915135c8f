"""Sources that are computed from other sources: joins, as-of joins, unions, row assets, chains."""

from tidemark.define.derived.as_of import as_of
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union

__all__ = ["Between", "DerivedSource", "as_of", "chain", "join", "row_asset", "union"]
