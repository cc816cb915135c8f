"""Decode CSV by RFC 4180: one record in each value, with the columns in order.

Arrow reads regular records, some thousands at once. Python reads all others, and finds the dead
letters among them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyarrow import csv

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.payload import (
    Columns,
    Decoded,
    Results,
    UndecodableError,
    decode_by_halves,
    decode_except,
    undecoded_rows,
)
from tidemark_streaming.payloads.text_values import (
    TIME_OPTIONS,
    TimeFormats,
    decode_utf8,
    faults_of,
    parse_texts,
)

SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_LINE = "sep="
"""The beginning of the first line with which Excel states the separator of a file."""

LONGEST = 1 << 20
"""The maximum size, in bytes, of a record with line breaks. If a quoted field does not end within
this size, the first line of the record counts as the entire record."""

_BLOCK = 1 << 20
"""Bytes that one thread of Arrow reads at once."""
_DECIMAL_SEPARATOR = "decimalSeparator"
_OPTIONS = ("header", "sep", "nullValue", _DECIMAL_SEPARATOR, *TIME_OPTIONS)
_WITH_COMMA = r"^([^.,]*),([^.,]*)$"


@dataclass(frozen=True)
class Csv:
    """CSV, one record in each value.

    A field is quoted as a whole or not at all; a quote within quotes is doubled. An unquoted field
    that is empty, or equals `nullValue`, is null. A quoted field is never null in a STRING column.
    In other columns, a quoted empty field is null.

    Args:
        options: `header`, whether files begin with the columns' names; `sep`, the separator between
            fields (default: a comma); `nullValue`; `decimalSeparator`, a comma if numbers are
            written as `1,5`; `timestampFormat` and `dateFormat`, the formats
            of times and days as in `TimeFormats` (default: ISO 8601); `timeZone`, the zone of times
            without an offset, which are refused without it; `finer`, `truncate` to drop the digits
            of times beyond microseconds.

    Raises:
        DefinitionError: another option, or an invalid value.
    """

    options: Mapping[str, str | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.options) - set(_OPTIONS)):
            raise DefinitionError(
                f"CSV has no option '{unknown[0]}': the options are {', '.join(_OPTIONS)}."
            )
        if len(self.separator) != 1 or self.separator in '"\r\n\0' or not self.separator.isascii():
            raise DefinitionError(
                "CSV: the option 'sep' must be one ASCII character, but not a quote, a line break "
                f"or NUL (got {self.separator!r})."
            )
        if str(self.options.get("header", False)).lower() not in ("true", "false"):
            raise DefinitionError(
                f"CSV: the option 'header' must be true or false (got {self.options['header']!r})."
            )
        if (separator := self.options.get(_DECIMAL_SEPARATOR, ".")) not in (".", ","):
            raise DefinitionError(
                f"CSV: the option '{_DECIMAL_SEPARATOR}' must be '.' or ',' (got {separator!r})."
            )
        _ = self.time_formats

    @property
    def separator(self) -> str:
        return str(self.options.get("sep", ","))

    @property
    def has_header(self) -> bool:
        """Return whether files begin with the names of the columns."""
        return str(self.options.get("header", False)).lower() == "true"

    def is_separator_line(self, record: bytes) -> bool:
        """Return whether a record is the line with which Excel states this format's separator."""
        return record.strip().lower() == f"{SEPARATOR_LINE}{self.separator}".encode()

    @cached_property
    def time_formats(self) -> TimeFormats:
        return TimeFormats.from_options(self.options)

    def split_records(self, content: bytes, *, is_last: bool) -> tuple[list[bytes], bytes]:
        """Return the records in a block of a file, and the incomplete record at the end of the
        block.

        Args:
            is_last: true for the last block, whose end also ends a record.
        """
        return self._record_splitter.split_records(content, is_last=is_last)

    def decode_values(self, values: pa.ChunkedArray, columns: Columns) -> Decoded:
        return decode_except(
            values,
            {},
            lambda part_values: decode_by_halves(
                part_values,
                lambda part: self._decode_in_bulk(part, columns),
                lambda part: self._decode_singly(part, columns),
            ),
        )

    def split_fields(self, record: bytes) -> list[str | None]:
        """Return the fields of a record; None for a field that is null.

        Raises:
            UndecodableError: the bytes are not a CSV record, or not UTF-8.
        """
        fields = list[str | None]()
        for text, quoted in self._split_texts(record):
            is_null = text in self._null_texts and not quoted
            fields.append(None if is_null else text)
        return fields

    def _decode_in_bulk(self, values: pa.ChunkedArray, columns: Columns) -> Decoded | None:
        """Decode records with Arrow. Return None if a record is not regular."""
        texts = decode_utf8(values)
        regular = pc.match_substring_regex(texts, self._record_pattern)
        empty = pc.equal(pc.binary_length(texts), 0)
        if texts.null_count or not pc.all(regular).as_py() or pc.any(empty).as_py():
            return None
        # Arrow would remove a byte order mark at the beginning, but it is a part of the first
        # field.
        if len(texts) and texts[0].as_py().startswith("\ufeff"):
            return None
        # Arrow takes an empty field at the very end for a quoted field, so the text gets a final
        # line break.
        flat = pa.concat_arrays([*texts.chunks, pa.array([""], pa.string())])
        every = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
        text = pc.binary_join(every, "\n")[0].as_buffer()
        names = list(columns)
        try:
            rows = csv.read_csv(
                pa.BufferReader(text),
                csv.ReadOptions(
                    column_names=names,
                    block_size=max(_BLOCK, 2 * pc.max(pc.binary_length(texts)).as_py()),
                ),
                csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=False
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=sorted(self._null_texts),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException:
            return None
        if rows.num_rows != len(values):
            return None
        return self._convert_texts(Results(len(values)), rows.columns, columns)

    def _decode_singly(self, values: Sequence[bytes | None], columns: Columns) -> Decoded:
        """Decode records one by one in Python."""
        results = Results(len(values))
        rows = list[list[str | None]]()
        for row, value in enumerate(values):
            fields: list[str | None] = [None] * len(columns)
            try:
                parsed = fields if value is None else self.split_fields(value)
                if len(parsed) != len(columns):
                    raise UndecodableError(
                        f"The record has {format_count(len(parsed), 'field')} instead of "
                        f"{len(columns):,}."
                    )
                fields = parsed
            except UndecodableError as error:
                results.refuse_row(row, str(error))
            rows.append(fields)
        texts = [pa.chunked_array([pa.array(t, pa.string())]) for t in zip(*rows, strict=True)]
        texts = texts or [pa.chunked_array([pa.array([], pa.string())]) for _ in columns]
        return self._convert_texts(results, texts, columns)

    def _convert_texts(
        self, results: Results, texts: Sequence[pa.ChunkedArray], columns: Columns
    ) -> Decoded:
        for (name, kind), column in zip(columns.items(), texts, strict=True):
            if kind is None:
                continue
            target = arrow_type(kind)
            if pa.types.is_nested(target):
                raise DefinitionError(
                    f"CSV can't represent the type {kind.upper()} of the column '{name}': use a "
                    "scalar type, or another format."
                )
            if not pa.types.is_string(target):
                empty = pc.equal(pc.binary_length(column), 0)
                column = pc.if_else(empty, None, column) if pc.any(empty).as_py() else column
            if pa.types.is_floating(target) or pa.types.is_decimal(target):
                values = parse_texts(self._with_point(column), target, self.time_formats)
            else:
                values = parse_texts(column, target, self.time_formats)
            results.add_column(name, values)
            rows = undecoded_rows(column, values)
            faults = faults_of(column.take(pa.array(rows, pa.int64())), target, self.time_formats)
            results.add_faults(dict(zip(rows, faults, strict=True)), name, kind)
        return results.finish_events()

    def _with_point(self, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return numbers with a decimal point. A text with another separator becomes null."""
        if self.options.get(_DECIMAL_SEPARATOR) != ",":
            return texts
        other = pc.match_substring_regex(texts, r"[.].*|,.*,")
        texts = pc.if_else(other, None, texts)
        return pc.replace_substring_regex(texts, _WITH_COMMA, r"\1.\2")

    def _split_texts(self, record: bytes) -> Iterator[tuple[str, bool]]:
        """Yield the text of each field of a record, and whether the field is quoted."""
        try:
            text = record.decode()
            start = 0
        except UnicodeDecodeError:
            raise UndecodableError("The record is not valid UTF-8.") from None
        while True:
            part = self._field_pattern.match(text, start)
            end = start if part is None else part.end()
            if part is None or text[end : end + 1] not in ("", self.separator):
                raise UndecodableError(
                    "The record is not valid CSV: a quote or a line break is misplaced."
                )
            quoted = part[1] is not None
            yield (part[1].replace('""', '"') if quoted else part[2]), quoted
            if end == len(text):
                return
            start = end + 1

    @cached_property
    def _record_splitter(self) -> "_Splitter":
        return _Splitter(self._record_pattern, self._open_pattern, self._still_open_pattern)

    @cached_property
    def _null_texts(self) -> frozenset[str]:
        return frozenset({"", str(self.options.get("nullValue", ""))})

    @cached_property
    def _field_pattern(self) -> re.Pattern[str]:
        sep = re.escape(self.separator)
        return re.compile(rf'"((?:[^"]|"")*)"|((?:[^"{sep}\r\n][^{sep}\r\n]*)?)')

    @cached_property
    def _record_pattern(self) -> str:
        """The pattern of a complete record."""
        sep = re.escape(self.separator)
        field = rf'(?:"(?:[^"]|"")*"|(?:[^"{sep}\r\n][^{sep}\r\n]*)?)'
        return rf"^{field}(?:{sep}{field})*$"

    @cached_property
    def _open_pattern(self) -> str:
        """The pattern of an incomplete record, which breaks off within quotes."""
        sep = re.escape(self.separator)
        field = rf'(?:"(?:[^"]|"")*"|(?:[^"{sep}\r\n][^{sep}\r\n]*)?)'
        return rf'^(?:{field}{sep})*"(?:[^"]|"")*$'

    @cached_property
    def _still_open_pattern(self) -> str:
        """The pattern of a line of an incomplete record that both begins and breaks off within
        quotes."""
        sep = re.escape(self.separator)
        field = rf'(?:"(?:[^"]|"")*"|(?:[^"{sep}\r\n][^{sep}\r\n]*)?)'
        return rf'^(?:[^"]|"")*(?:"{sep}(?:{field}{sep})*"(?:[^"]|"")*)?$'


class _Splitter:
    """Splits bytes into records. A record is one line, or several lines if a field has line breaks
    within quotes.

    Args:
        record: the pattern of a complete record.
        beginning: the pattern of an incomplete record, which breaks off within quotes.
        continuing: the pattern of a line that begins within quotes, and breaks off within quotes.
    """

    def __init__(self, record: str, beginning: str, continuing: str) -> None:
        self._record = record
        self._whole = re.compile(record.encode("ascii"))
        self._beginning = re.compile(beginning.encode("ascii"))
        self._continuing = re.compile(continuing.encode("ascii"))

    def split_records(self, content: bytes, *, is_last: bool) -> tuple[list[bytes], bytes]:
        *lines, remainder = content.split(b"\n")
        if is_last and remainder:
            lines = [*lines, remainder]
            remainder = b""
        if b'"' not in content:
            return [line for line in map(_without_return, lines) if line], remainder
        records = list[bytes]()
        index = 0
        while index < len(lines):
            line = _without_return(lines[index])
            if b'"' not in line or self._whole.search(line) or not self._beginning.search(line):
                if line:
                    records.append(line)
                index += 1
                continue
            end = self._find_end(lines, index)
            if end is None and not is_last and sum(map(len, lines[index:])) <= LONGEST:
                return records, b"\n".join([*lines[index:], remainder])
            end = index + 1 if end is None else end
            records.append(_without_return(b"\n".join(lines[index:end])))
            index = end
        return records, remainder

    def _find_end(self, lines: Sequence[bytes], first_line: int) -> int | None:
        """Return the index after the last line of a record whose first line, `lines[at]`, breaks
        off within quotes. Return None if the record does not end within `LONGEST` bytes."""
        size = len(lines[first_line])
        for number in range(first_line + 1, len(lines)):
            size += 1 + len(lines[number])
            if size > LONGEST:
                return None
            # Each line is examined once: a line without a quote continues the field.
            line = _without_return(lines[number])
            if b'"' in line and not self._continuing.search(line):
                return number + 1
        return None


def _without_return(line: bytes) -> bytes:
    if line.endswith(b"\r"):
        return line[:-1]
    return line
