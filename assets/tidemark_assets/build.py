"""The public names with which a domain defines its appearance in Dagster."""

from tidemark_assets.tables.options import DagsterOptions

__all__ = ["DagsterOptions"]
