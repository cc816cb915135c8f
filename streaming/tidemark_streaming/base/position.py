"""Recognize positions of the file connector (field `file`) and the Delta connector (`table`).

A source may have arrivals of several connectors. A position of these two has a text in the field. A
Kafka topic may be named `file` or `table`, too, but a Kafka position has an object under the name
of each topic (`kafka_position`).
"""

import json
from typing import Any


def parse_with_text(position: str, field: str) -> dict[str, Any] | None:
    """Parse a position from JSON. Return None if the field is missing or is not a text.

    In that case, another connector wrote the position.
    """
    parsed = json.loads(position)
    has_text = isinstance(parsed, dict) and isinstance(parsed.get(field), str)
    return parsed if has_text else None
