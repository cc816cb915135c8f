"""JSON output that every parser accepts."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any


def as_json(value: object, indent: int | None = None) -> str:
    """Return any value of a table as JSON.

    NaN and the infinities, which JSON lacks, are the texts `NaN`, `Infinity` and `-Infinity`, as
    Spark writes them. Instants are ISO 8601, bytes are Base64. Values of other types that JSON
    lacks, such as decimals, are text.
    """
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: object) -> Any:  # noqa: ANN401 (what JSON can hold)
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case None | str() | bool() | int() | float():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {
                name if isinstance(name, str) else as_json(name): _plain(each)
                for name, each in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case _:
            return str(value)
