"""Select windows by key values that a user has written as text.

Each text is converted to the type of its key, and then compared. For a DOUBLE, `1`, `1.0` and `1e0`
are the same value; for a TIMESTAMP, `2026-01-01` is midnight. A text that can't be converted is
refused.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import as_datetime, parse_instant
from tidemark.store.commits.conditions import text_field

KeyChoice = Mapping[str, str | None]
"""The chosen value of each key as text; None selects the windows whose key is null."""


def select_keys(rows: pa.Table, keys: KeyChoice, asset: str) -> pa.Table:
    """Return the rows with the chosen keys; `keys` and `asset` are as for `key_condition`."""
    types = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    condition = key_condition(keys, types, asset)
    if condition is None:
        return rows
    return rows.filter(condition)


def key_condition(
    keys: KeyChoice, types: Mapping[str, pa.DataType], asset: str
) -> ds.Expression | None:
    """Return the condition that a row has the chosen keys; None if no key is chosen.

    Args:
        types: the types of the table's columns, by name.
        asset: the asset's name, for error messages.

    Raises:
        DefinitionError: the table has no column of a key, or a text is not a value of its type.
    """
    condition: ds.Expression | None = None
    for name, text in keys.items():
        if name not in types:
            raise DefinitionError(
                f"The rows of '{asset}' have no column '{name}', because the asset's function "
                "computes this key, or because another definition made the table: omit --key."
            )
        part = _key_equals(name, text, types[name], f"The key '{name}' of '{asset}'")
        condition = part if condition is None else condition & part
    return condition


def _key_equals(name: str, text: str | None, kind: pa.DataType, described: str) -> ds.Expression:
    if text is None:
        return ds.field(name).is_null()
    if pa.types.is_nested(kind):
        raise DefinitionError(
            f"{described} has the type {kind}, so --key can't select by it: select windows by "
            "--from and --to."
        )
    if pa.types.is_string(kind):
        return text_field(name) == text
    field = ds.field(name)
    value = _parse_value(text, kind, described)
    # NaN is not equal to itself, but all events whose key is NaN are in the same windows.
    is_nan = pa.types.is_floating(kind) and value.as_py() != value.as_py()
    if is_nan:
        return field.is_nan()
    return field == value


def _parse_value(text: str, kind: pa.DataType, described: str) -> "pa.Scalar[pa.DataType]":
    try:
        if pa.types.is_timestamp(kind):
            moment = as_datetime(parse_instant(text))
            return pa.scalar(moment if kind.tz else moment.replace(tzinfo=None), kind)
        if pa.types.is_date(kind):
            return pa.scalar(datetime.fromisoformat(text).replace(tzinfo=UTC).date(), kind)
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowException, DefinitionError, ValueError):
        raise DefinitionError(
            f"{described} must be a value of type {kind} (got '{text}')."
        ) from None
