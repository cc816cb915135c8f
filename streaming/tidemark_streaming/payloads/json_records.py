"""Decode JSON: one object in each value.

Two readers give the same result. Arrow's reader is fast, and reads regular values, some thousands
at once. The reader in Python reads all other values; it follows RFC 8259 exactly and determines
which values are dead letters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import json

from tidemark.base import thresholds
from tidemark.base.errors import DefinitionError
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.json_values import create_reader, object_members
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Results,
    UndecodableError,
    columns_to_read,
    decode_by_halves,
    decode_except,
    undecoded_rows,
)
from tidemark_streaming.payloads.registry import split_id, split_ids
from tidemark_streaming.payloads.text_values import (
    TIME_OPTIONS,
    TimeFormats,
    decode_base64,
    faults_of,
    parse_texts,
)

_BLOCK = 1 << 20
"""Bytes that one thread of Arrow reads at once."""
_TINY = r"[:,\[\s]-?\d[\d.]*[eE]-\d\d|0{30}"
"""Matches numbers that may be so small that their type would turn them into zero."""
_CONSTANT = r"[:,\[]\s*-?(?:NaN|Inf(?:inity)?)\s*[,}\]]"
"""Matches constants that are not JSON, although Arrow accepts them, even in undeclared members."""
_SPACE = b" \t\r"
_FRACTIONS = pa.decimal128(38, 9)
"""The type with which Arrow reads counts since 1970 that have a fraction."""


@dataclass(frozen=True)
class Json:
    """JSON, one object in each value, whose members are the columns with the same names.

    Args:
        options: `timestampFormat` and `dateFormat`, the formats of times and days as in
            `TimeFormats` (default: ISO 8601); `timeZone`, the zone of times without an offset,
            which are refused without it; `finer`, `truncate` to drop the digits of times beyond
            microseconds.
        by_id: true if each value begins with the ID of a schema, as Confluent's serializer for JSON
            Schema writes it. The ID is ignored.

    Raises:
        DefinitionError: another option, or an invalid value.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    by_id: bool = False
    formats: TimeFormats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.options) - set(TIME_OPTIONS)):
            raise DefinitionError(
                f"JSON has no option '{unknown[0]}': the options are {', '.join(TIME_OPTIONS)}."
            )
        object.__setattr__(self, "formats", TimeFormats.from_options(self.options))

    def decode_values(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        needed = columns_to_read(columns)
        reasons = dict[int, str]()
        if self.by_id:
            values, reasons = split_ids(values)
        return decode_except(
            values,
            reasons,
            lambda part_values: decode_by_halves(
                part_values,
                lambda part: self._decode_in_bulk(part, needed),
                lambda part: self._decode_singly(part, needed),
            ),
        )

    def json_text(self, value: bytes) -> bytes:
        """Return the JSON text of a record.

        Raises:
            UndecodableError: the record should begin with the ID of a schema, but does not.
        """
        if self.by_id:
            return split_id(value)[1]
        return value

    def split_records(self, content: bytes, *, is_last: bool) -> tuple[list[bytes], bytes]:
        """Return the nonblank lines in a block of a file, and the incomplete line at its end.

        Args:
            is_last: true for the last block, whose end also ends a line.
        """
        *lines, remainder = content.split(b"\n")
        if is_last:
            lines = [*lines, remainder]
            remainder = b""
        stripped = [line.strip(_SPACE) for line in lines]
        return [line for line in stripped if line], remainder

    def _decode_in_bulk(
        self, values: pa.ChunkedArray, columns: Mapping[str, str]
    ) -> Decoded | None:
        """Decode values with Arrow. Return None if a value is not regular."""
        if values.nbytes > thresholds.JSON_BATCH_BYTES:
            return None
        kinds = {name: arrow_type(kind) for name, kind in columns.items()}
        if not kinds or not all(map(_is_regular, kinds.values())):
            return None
        if _may_wrap(values, kinds.values()):
            return None
        lines = _join_lines(values)
        if lines is None:
            return None
        longest = pc.max(pc.binary_length(values)).as_py()
        blocks = json.ReadOptions(block_size=max(_BLOCK, 2 * longest))
        rows = self._read_lines(lines, kinds, pa.int64(), blocks)
        has_counts = self.formats.are_counts and any(map(pa.types.is_timestamp, kinds.values()))
        if rows is None and has_counts and not _may_change(values, _FRACTIONS):
            rows = self._read_lines(lines, kinds, _FRACTIONS, blocks)
        # One value may hold two objects.
        if rows is None or rows.num_rows != len(values):
            return None
        if any(_has_odd_numbers(rows[name], values) for name in kinds):
            return None
        results = Results(len(values))
        for name, kind in kinds.items():
            if not _is_text(kind):
                results.add_column(name, rows[name])
                continue
            column = self._parse_column(rows[name], kind)
            results.add_column(name, column)
            undecoded = undecoded_rows(rows[name], column)
            texts = rows[name].take(pa.array(undecoded, pa.int64())).cast(pa.string())
            faults = faults_of(texts, kind, self.formats)
            results.add_faults(dict(zip(undecoded, faults, strict=True)), name, columns[name])
        return results.finish_events()

    def _read_lines(
        self,
        lines: pa.Buffer,
        kinds: Mapping[str, pa.DataType],
        count_type: pa.DataType,
        blocks: json.ReadOptions,
    ) -> pa.Table | None:
        """Read lines with Arrow. Return None if a value does not have its type.

        Args:
            count_type: the type of counts since 1970.
        """
        types = {name: self._json_type(kind, count_type) for name, kind in kinds.items()}
        options = json.ParseOptions(
            explicit_schema=pa.schema(types), unexpected_field_behavior="ignore"
        )
        try:
            rows = json.read_json(pa.BufferReader(lines), blocks, options)
            rows.validate(full=True)
        except pa.ArrowException:
            return None
        return rows

    def _json_type(self, kind: pa.DataType, count_type: pa.DataType) -> pa.DataType:
        """Return the type with which Arrow reads a column.

        It is a number for counts since 1970, a string for other times and for bytes, and otherwise
        the column's type.
        """
        if pa.types.is_timestamp(kind) and self.formats.are_counts:
            return count_type
        if _is_text(kind):
            return pa.string()
        return kind

    def _parse_column(self, written: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if pa.types.is_binary(kind):
            return pa.chunked_array([decode_base64(written)])
        if pa.types.is_integer(written.type):
            return self.formats.from_counts(written, kind)
        return parse_texts(written.cast(pa.string()), kind, self.formats)

    def _decode_singly(self, values: Sequence[bytes | None], columns: Mapping[str, str]) -> Decoded:
        """Decode values one by one in Python."""
        readers = {
            name: create_reader(arrow_type(kind), self.formats) for name, kind in columns.items()
        }
        results = Results(len(values))
        for row, value in enumerate(values):
            members = dict[str, str]()
            try:
                members = {} if value is None else object_members(value, columns)
            except UndecodableError as error:
                results.refuse_row(row, str(error))
            for name, value_reader in readers.items():
                value_reader.add_value(members.get(name), row)
        for name, value_reader in readers.items():
            results.add_column(name, value_reader.finish_column())
            results.add_faults(value_reader.faults, name, columns[name])
        return results.finish_events()


def _is_text(kind: pa.DataType) -> bool:
    """Return whether values of this type, a time or bytes, are texts or counts in JSON."""
    return pa.types.is_temporal(kind) or pa.types.is_binary(kind)


def _is_regular(kind: pa.DataType, *, within: bool = False) -> bool:
    """Return whether Arrow reads JSON values of this type correctly.

    Args:
        within: true if the values are parts of structs or lists.
    """
    if pa.types.is_map(kind) or (within and _is_text(kind)):
        return False
    return all(_is_regular(part, within=True) for part in _inner_types(kind))


def _inner_types(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [part.type for part in kind]
    if pa.types.is_list(kind):
        return [kind.value_type]
    return []


def _may_wrap(values: pa.ChunkedArray, kinds: Iterable[pa.DataType]) -> bool:
    """Return whether a number may be too large for a decimal column.

    Arrow multiplies each number by the power of ten of the column's scale, in 128 bits, and doesn't
    notice an overflow.
    """
    scales = [kind.scale for kind in _with_parts(kinds) if pa.types.is_decimal(kind)]
    if not scales:
        return False
    long = rf"\d{{{38 - max(scales) + 1},}}"
    raised = r"[\d.]+[eE]\+?\d+\"?\s*[,\]}]"
    is_long = pc.match_substring_regex(values, rf"[:\[,]\s*\"?[+-]?(?:{long}|{raised})")
    return bool(pc.any(is_long).as_py())


def _may_change(values: pa.ChunkedArray, kind: pa.Decimal128Type) -> bool:
    """Return whether Arrow may read a number as another decimal of this type: it wraps large
    numbers around, and reads very small ones as zero."""
    has_exponent = pc.match_substring_regex(values, r"\d[eE][+-]?\d")
    return bool(pc.any(has_exponent).as_py()) or _may_wrap(values, [kind])


def _with_parts(kinds: Iterable[pa.DataType]) -> Iterator[pa.DataType]:
    """Yield each type, followed by the types that it contains at any depth."""
    for kind in kinds:
        yield kind
        yield from _with_parts(_inner_types(kind))


def _join_lines(values: pa.ChunkedArray) -> pa.Buffer | None:
    """Return the values joined by line breaks. Return None unless each value is an object on one
    line, in UTF-8, without constants such as NaN, and not nested too deeply."""
    if values.null_count:
        return None
    is_object = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    if not pc.all(is_object).as_py() or pc.any(pc.match_substring(values, b"\n")).as_py():
        return None
    if pc.any(pc.match_substring_regex(values, _CONSTANT)).as_py():
        return None
    begins = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    if pc.max(begins).as_py() > MAX_DEPTH:
        return None
    try:
        texts = pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return None
    flat = pa.concat_arrays(texts.chunks)
    every = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
    return pc.binary_join(every, "\n")[0].as_buffer()


def _has_odd_numbers(column: Any, values: pa.ChunkedArray) -> bool:  # noqa: ANN401 (Arrow's)
    """Return whether a number overflowed, or was read as zero although its text may not be zero."""
    kind = column.type
    if pa.types.is_list(kind):
        return _has_odd_numbers(pc.list_flatten(column), values)
    if pa.types.is_struct(kind):
        parts = (pc.struct_field(column, [n]) for n in range(kind.num_fields))
        return any(_has_odd_numbers(part, values) for part in parts)
    if not pa.types.is_floating(kind):
        return False
    if pc.all(pc.is_finite(column)).as_py() is False:
        return True
    zero = pc.fill_null(pc.equal(column, 0), fill_value=False)
    if not pc.any(zero).as_py():
        return False
    suspects = values.filter(zero) if len(zero) == len(values) else values
    return pc.any(pc.match_substring_regex(suspects, _TINY)).as_py()
