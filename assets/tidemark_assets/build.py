"""How the assets of a domain appear in Dagster."""

from tidemark_assets.tables.windows import DagsterOptions

__all__ = ["DagsterOptions"]
