"""Convert Arrow values to a column's type, exactly or not at all.

A value keeps its kind: a number does not become a time, a text does not become a number. A value is
never truncated, rounded or wrapped around. A floating-point number is never stored in a smaller
type.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.store.rows import INSTANT
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.time_rules import ZONE_OPTION, TimeRules, floor_to_micros

_Array = Any
"""An Arrow array."""

_WHOLE_NUMBERS = pa.decimal128(38, 0)

_NO_ZONE = f"it has no time zone, so set the option {ZONE_OPTION} to the zone of its values"


class OtherTypeError(Exception):
    """No value of the given type can be converted to the wanted type. The message says more, if
    there is more to say.

    `find_name` also raises this error, if a name is ambiguous.
    """


def fit_values(values: _Array, kind: pa.DataType, rules: TimeRules) -> tuple[_Array, list[int]]:
    """Convert values to another type. Return the result, in which a value that does not fit is
    null, and the row indices of such values.

    Args:
        rules: what to do with times without a time zone, and with times finer than microseconds.

    Raises:
        OtherTypeError: the type of the values can't be converted.
    """
    try:
        return _convert_values(values, kind, rules), []
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, kind), [0]
    except pa.ArrowNotImplementedError:
        raise OtherTypeError from None
    # `take` copies: the child arrays of a sliced array would still have all rows.
    halves = np.array_split(np.arange(len(values)), 2)
    fitted = [fit_values(values.take(pa.array(half)), kind, rules) for half in halves]
    misfits = list[int]()
    for half, (_, rows) in zip(halves, fitted, strict=True):
        misfits += [int(half[row]) for row in rows]
    return pa.concat_arrays([part for part, _ in fitted]), misfits


def find_name(names: Sequence[str], name_sought: str) -> int | None:
    """Return the index of a name in `names`, ignoring case; None if no name matches.

    Raises:
        OtherTypeError: several names match, and not exactly one of them is equal to `name_sought`.
    """
    alike = [index for index, name in enumerate(names) if name.lower() == name_sought.lower()]
    matching = [index for index in alike if names[index] == name_sought] or alike
    if len(matching) > 1:
        raise OtherTypeError
    if matching:
        return matching[0]
    return None


def _convert_values(values: _Array, kind: pa.DataType, rules: TimeRules) -> _Array:
    """Convert values to another type.

    Raises:
        OtherTypeError: the type of the values can't be converted.
        pa.ArrowInvalid: a value does not fit.
    """
    stored = values.type
    is_ = pa.types
    if is_.is_dictionary(stored):
        return _convert_values(values.dictionary_decode(), kind, rules)
    if isinstance(stored, pa.UuidType) and is_.is_string(kind):
        return pa.array((identifier and str(identifier) for identifier in values.to_pylist()), kind)
    if isinstance(stored, pa.BaseExtensionType):
        return _convert_values(values.storage, kind, rules)
    if is_.is_null(stored):
        return pa.nulls(len(values), kind)
    if is_.is_nested(kind):
        return _convert_nested_values(values, kind, rules)
    if is_.is_date32(stored) or is_.is_date64(stored) or is_.is_timestamp(stored):
        return _convert_times(values, kind, rules)
    number = is_.is_integer(stored) or is_.is_decimal(stored)
    if is_.is_decimal(kind) and number:
        # Arrow refuses to cast an integer type if its greatest integer does not fit, even if all
        # values fit.
        return (values if is_.is_decimal(stored) else pc.cast(values, _WHOLE_NUMBERS)).cast(kind)
    if is_.is_string(kind) and _is_text_or_bytes(stored):
        # A file's texts may not be UTF-8, even if the file declares them as such.
        values.validate(full=True)
        return pc.cast(values, kind)
    if (
        stored == kind
        or (is_.is_binary(kind) and (is_.is_fixed_size_binary(stored) or _is_text_or_bytes(stored)))
        or (is_.is_integer(stored) and (is_.is_integer(kind) or is_.is_floating(kind)))
        or (
            is_.is_floating(stored) and is_.is_floating(kind) and stored.bit_width <= kind.bit_width
        )
    ):
        return pc.cast(values, kind)
    raise OtherTypeError


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is a text or bytes of variable length."""
    is_ = pa.types
    is_text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    return is_text or is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind)


def _convert_times(values: _Array, kind: pa.DataType, rules: TimeRules) -> _Array:
    """Convert dates or timestamps to another type of dates or timestamps."""
    if pa.types.is_date(kind) and pa.types.is_date(values.type):
        return pc.cast(values, kind)
    if not pa.types.is_timestamp(kind):
        raise OtherTypeError
    stored = values.type
    is_local = pa.types.is_date(stored) or stored.tz is None
    if is_local and kind == INSTANT and rules.zone is None:
        raise OtherTypeError(_NO_ZONE)
    if not is_local and kind != INSTANT:
        # An instant has no date and time of day without a zone.
        raise OtherTypeError
    micros_type = pa.timestamp("us") if is_local else INSTANT
    if rules.is_truncating and pa.types.is_timestamp(stored) and stored.unit == "ns":
        micros = floor_to_micros(pc.cast(values, pa.int64())).cast(micros_type)
    else:
        micros = pc.cast(values, micros_type)
    if is_local and kind == INSTANT:
        return rules.to_utc(micros)
    return micros


def _convert_nested_values(values: _Array, kind: pa.DataType, rules: TimeRules) -> _Array:
    """Convert lists, maps or structs to another type of lists, maps or structs."""
    stored = values.type
    is_ = pa.types
    missing = values.is_null()
    if is_.is_map(kind) and is_.is_map(stored):
        keys = _convert_values(values.keys, kind.key_type, rules)
        items = _convert_values(values.items, kind.item_type, rules)
        return pa.MapArray.from_arrays(values.offsets, keys, items, kind, mask=missing)
    if is_.is_struct(kind) and is_.is_struct(stored):
        children = values.flatten()
        names = [field.name for field in stored]
        parts = [
            pa.nulls(len(values), field.type)
            if (index := find_name(names, field.name)) is None
            else _convert_values(children[index], field.type, rules)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if is_.is_list(kind) and hasattr(stored, "value_type") and not is_.is_dictionary(stored):
        plain = values.cast(pa.list_(stored.value_type))
        inner = _convert_values(plain.values, kind.value_type, rules)
        return pa.ListArray.from_arrays(plain.offsets, inner, kind, mask=missing)
    raise OtherTypeError


def rows_finer_than_micros(values: _Array, nanos: _Array) -> list[int]:
    """Return the indices of rows in which a timestamp, at any depth, lost digits beyond
    microseconds.

    Args:
        values: the values, with timestamps in microseconds.
        nanos: the same values, with timestamps in nanoseconds, which are wrapped around if 64 bits
            can't hold them.
    """
    kind = values.type
    is_ = pa.types
    if is_.is_map(kind):
        return rows_finer_than_micros(_map_pairs(values), _map_pairs(nanos))
    if is_.is_struct(kind):
        parts = zip(values.flatten(), nanos.flatten(), strict=True)
        return sorted({row for pair in parts for row in rows_finer_than_micros(*pair)})
    if is_.is_list(kind) or is_.is_large_list(kind):
        inner = rows_finer_than_micros(pc.list_flatten(values), pc.list_flatten(nanos))
        return sorted(
            set(pc.list_parent_indices(values).take(pa.array(inner, pa.int64())).to_pylist())
        )
    if not is_.is_timestamp(kind):
        return []
    exact = pc.multiply(pc.cast(values, pa.int64()), 1000)
    differs = pc.not_equal(exact, pc.cast(nanos, pa.int64()))
    return np.flatnonzero(pc.fill_null(differs, False)).tolist()


def _map_pairs(values: _Array) -> _Array:
    kind = values.type
    return values.cast(pa.list_(pa.struct({"key": kind.key_type, "value": kind.item_type})))
