"""Sources that are computed from other sources: joins and unions."""

from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.union import union

__all__ = ["Between", "DerivedSource", "join", "union"]
