"""Identify a window's keys, whether they come from a table or from the JSON of a recorded result.

JSON has fewer types than a table: a TIMESTAMP, a BINARY, NaN, or 1.50 of a DECIMAL are other values
there. The types of the table's columns determine which values they are.
"""

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.base.instants import instant, iso

Types = Mapping[str, pa.DataType]
"""The types of an asset's keys, by name."""
_EXACT = Context(prec=76)


def keys_of_row(row: Mapping[str, Any], types: Types) -> str:
    """Return the text that identifies the keys of a row."""
    plain = {name: _plain(row[name], kind) for name, kind in types.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def keys_of_json(keys: str, types: Types) -> str:
    """Return the text that identifies keys, which the engine has written as JSON."""
    return keys_of_row(json.loads(keys, parse_float=str), types)


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 (any value of a column, and JSON)
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_floating(kind):
        number = float(value)
        # Keys have one zero: the engine groups by it.
        return str(float(np.float32(number)) if kind == pa.float32() else number + 0.0)
    if pa.types.is_decimal(kind):
        return str(Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT))
    if pa.types.is_timestamp(kind):
        return iso(instant(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
