"""Read Kafka records into memory and decode them there.

Fetching all fields of a record from the client takes longer than all other work on the record.
Events need only a few of these fields. A dead letter, however, keeps all fields of its record. If a
read finds a dead letter, the same records are therefore read again with all fields. Later reads
fetch all fields too, until a read finds no dead letter. Records are decoded some thousands at a
time, so that a backlog stays in memory only as decoded rows.

If a source has protected columns, its records are protected in the memory of this process: keys and
headers before decoding, values during decoding. The engine must not receive them unprotected,
because it may write its data to files and show the data in its log.

JSON fields that a source does not declare are ignored, but reported. A search of every value for
such fields would cost as much as decoding it. Therefore only a sample of each arrival is searched,
which is spread over all of the arrival's values; a small arrival is searched completely.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.define.protection import Change
from tidemark.define.source import CORRELATION, Source
from tidemark.store.event_log.dead_letters import DEAD
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.base.kafka_position import Position
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.records import SCHEMA, Reader
from tidemark_streaming.payloads import Json, Payload
from tidemark_streaming.payloads.undeclared import MAX_NAMES, find_undeclared, sample_step

Fields = Mapping[int, tuple[str, ...]]
"""The names of undeclared fields, by `chunk`."""

_COSTLY = {
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "timestamp_type",
    "kafka_headers": "headers",
}
"""Source columns whose record fields are costly to fetch."""


class Intake:
    """Reads and decodes records of a source.

    Args:
        payload: the format of the values.
        correlation: the header that holds an event's correlation ID.
    """

    def __init__(
        self, reader: Reader, source: Source, payload: Payload, correlation: str | None
    ) -> None:
        self._reader = reader
        self._source = source
        self._payload = payload
        self._correlation = correlation
        costly = {column for name, column in _COSTLY.items() if name in source.record_columns}
        costly |= {"headers"} if correlation is not None else set()
        self._wanted = [n for n in SCHEMA.names if n not in _COSTLY.values() or n in costly]
        # The dead letter of any record may be needed if columns are computed.
        self._few_fields = not source.computed

    def read_rows(self, positions: Sequence[str], cancel: Event) -> tuple[pa.Table, Fields]:
        """Return the decoded rows at the given positions, and for each chunk the JSON fields that
        the source does not declare.
        """
        pieces = [position.parse_position(p) for p in positions]
        if (
            self._few_fields
            and (decoded := self._read_fields(pieces, cancel, self._wanted)) is not None
        ):
            return decoded
        decoded = self._read_fields(pieces, cancel, None)
        assert decoded is not None
        self._few_fields = DEAD not in decoded[0].column_names
        return decoded

    def _read_fields(
        self, pieces: Sequence[Position], cancel: Event, field_names: Sequence[str] | None
    ) -> tuple[pa.Table, Fields] | None:
        """Return the result of `read`; None if there are dead letters and `field_names` lacks "
        "fields.

        Args:
            field_names: the fields to fetch; None for all.
        """
        rows = list[pa.Table]()
        fields = list[Fields]()
        names = SCHEMA.names if field_names is None else field_names
        for records in (SCHEMA.empty_table(), *self._reader.read_records(pieces, cancel, names)):
            if isinstance(self._payload, Json) and not self._source.mask:
                fields.append(_sample_fields(records, self._source.record_fields, self._payload))
            rows.append(self.decode_rows(records))
            if len(names) < len(SCHEMA) and DEAD in rows[-1].column_names:
                return None
        return pa.concat_tables(rows, promote_options="default"), _merge_samples(fields)

    def decode_rows(self, records: pa.Table) -> pa.Table:
        """Return records as decoded rows, protected as the source declares."""
        if self._source.mask:
            records = protect_records(records, self._source, self._correlation)
        return decode_records(records, self._source, self._payload, self._correlation)


def protect_records(records: pa.Table, source: Source, correlation: str | None) -> pa.Table:
    """Return records (`records.SCHEMA`) with keys and headers protected as their source declares.
    The column `size` is added, which has the original size of each record in bytes.

    Args:
        correlation: the header that holds an event's correlation ID.
    """
    ways = {name: way.create_change() for name, way in source.mask.items()}
    columns: dict[str, Any] = {
        "key": _protected_key(records["key"], source),
        "headers": [
            _protected_headers(
                record_headers, "kafka_headers" in source.record_columns, correlation, ways
            )
            for record_headers in records["headers"].to_pylist()
        ],
    }
    keys = records["key"].to_pylist()
    values = records["value"].to_pylist()
    sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
    for name, column in columns.items():
        index = records.column_names.index(name)
        kind = records.schema.field(name).type
        column = pa.array(column, kind) if isinstance(column, list) else column
        records = records.set_column(index, name, column)
    return records.append_column("size", pa.array(sizes, pa.int64()))


def _protected_key(
    keys: "pa.ChunkedArray[Any]", source: Source
) -> "pa.Array[Any] | pa.ChunkedArray[Any]":
    if "kafka_key" not in source.record_columns:
        return pa.nulls(len(keys), keys.type)
    way = source.mask.get("kafka_key")
    if way is None:
        return keys
    return way.protect_values(keys)


def _protected_headers(
    headers: Sequence[Mapping[str, Any]] | None,
    keeps_all: bool,
    correlation: str | None,
    ways: Mapping[str, Change],
) -> list[dict[str, Any]] | None:
    """Return the kept headers of a record, each of them protected; None if they can't be read.

    Args:
        headers: all headers of the record; None if they can't be read.
        keeps_all: true to keep all headers, false to keep only the header with the correlation ID.
        correlation: the name of the header that holds the correlation ID.
        ways: the functions that protect values, by column. The header with the correlation ID is
            protected like the others unless there is a function for the correlation ID.
    """
    if headers is None:
        return None
    usual = ways.get("kafka_headers", _unchanged_value)
    protect_correlation = ways.get(CORRELATION, usual)
    protected = list[dict[str, Any]]()
    for header in headers:
        name = header["key"]
        value = header["value"]
        is_correlation = name == correlation
        if not keeps_all and not is_correlation:
            continue
        if value is not None:
            protect = protect_correlation if is_correlation else usual
            value = protect(value)
        protected.append({"key": name, "value": value})
    return protected


def _unchanged_value(value: bytes) -> bytes:
    return value


def _merge_samples(samples: Iterable[Fields]) -> Fields:
    """Return the union of the fields of several samples."""
    names = dict[int, set[str]]()
    for sample in samples:
        for chunk, field_names in sample.items():
            names.setdefault(chunk, set()).update(field_names)
    return {chunk: tuple(sorted(field_names)[:MAX_NAMES]) for chunk, field_names in names.items()}


def _sample_fields(records: pa.Table, declared: Iterable[str], payload: Json) -> Fields:
    """Search a sample of each chunk's JSON values for fields that the source does not declare.

    Args:
        records: records (`records.SCHEMA`).
        declared: the names of the declared fields.
        payload: the format of the values.

    Returns:
        The names of the undeclared fields, by chunk index.
    """
    declared_fields = frozenset(declared)
    by_chunk = dict[int, tuple[str, ...]]()
    numbers = records["chunk"].to_numpy()
    for chunk in np.unique(numbers).tolist():
        indices = np.flatnonzero(numbers == chunk)
        sampled = indices[:: sample_step(len(indices))]
        values = records["value"].take(pa.array(sampled)).to_pylist()
        if names := find_undeclared(values, declared_fields, payload):
            by_chunk[chunk] = names
    return by_chunk
