"""Positions of connectors that identify their arrivals by a field with a text.

A source may have arrivals of several connectors. A Kafka topic may have any name, also that of such
a field, but the position of a Kafka connector has an object for each topic (`kafka_position`).
"""

import json
from typing import Any


def parse_with_text(position: str, field: str) -> dict[str, Any] | None:
    """Parse a position from JSON; return None if it has no text in the field, because another
    connector wrote it.
    """
    parsed = json.loads(position)
    has_text = isinstance(parsed, dict) and isinstance(parsed.get(field), str)
    return parsed if has_text else None
