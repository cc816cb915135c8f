"""Dagster metadata as text, as its pages show it."""

from typing import Any

import dagster as dg


def shown(value: dg.MetadataValue[Any]) -> str:
    """Return a table's rows as lines of cells, and any other value as text."""
    if not isinstance(value, dg.TableMetadataValue):
        return str(value.value)
    names = [column.name for column in value.schema.columns]
    rows = [names, *([record.data[name] for name in names] for record in value.records)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
