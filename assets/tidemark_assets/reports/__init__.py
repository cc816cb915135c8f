"""Report runs to Dagster, wherever they started."""
