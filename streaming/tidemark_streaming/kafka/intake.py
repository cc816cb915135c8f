"""Intake: records of Kafka come into memory, and are decoded there where their values are plain.

To ask the client for all that there is to a record takes longer than all else that is done with it.
Plain values need little of it, and are decoded some thousands at a time: of a backlog no more than
its rows is in memory. Where it turns out that the engine has to decode the values, of which some
may become dead letters, their records are read once more and whole; and so are those after them,
until they are plain again.
"""

from collections.abc import Sequence
from threading import Event

import pyarrow as pa

from tidemark.define.source import Source
from tidemark_streaming.kafka import plain, position
from tidemark_streaming.kafka.position import Position
from tidemark_streaming.kafka.records import SCHEMA, Reader

_COSTLY = {
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "timestamp_type",
    "kafka_headers": "headers",
}
"""Columns of a source for which records are asked for more than their keys and values."""


class PlainIntake:
    """Takes in records of a source whose values may be plain.

    Args:
        correlation: the header that holds an event's correlation id.
    """

    def __init__(self, reader: Reader, source: Source, correlation: str | None) -> None:
        self._reader = reader
        self._source = source
        self._correlation = correlation
        costly = {told for name, told in _COSTLY.items() if name in source.columns}
        costly |= {"headers"} if correlation is not None else set()
        self._wanted = [n for n in SCHEMA.names if n not in _COSTLY.values() or n in costly]
        self._plain = True

    def read(self, positions: Sequence[str], enough: Event) -> tuple[pa.Table, pa.Table | None]:
        """The records that positions tell, and the rows that they are, if they are plain; then
        nobody needs the records, and there may be none of them.

        Args:
            enough: where it is set, reading is given up.
        """
        pieces = [position.read(p) for p in positions]
        if self._plain and (rows := self._rows(pieces, enough)) is not None:
            return SCHEMA.empty_table(), rows
        records = pa.concat_tables([SCHEMA.empty_table(), *self._reader.read(pieces, enough)])
        rows = self._decoded(records)
        self._plain = rows is not None
        return records, rows

    def _rows(self, pieces: Sequence[Position], enough: Event) -> pa.Table | None:
        found = list[pa.Table]()
        for records in self._reader.read(pieces, enough, self._wanted):
            if not records.num_rows:
                continue
            rows = self._decoded(records)
            if rows is None:
                return None
            found.append(rows)
        return pa.concat_tables(found) if found else None

    def _decoded(self, records: pa.Table) -> pa.Table | None:
        return plain.decoded(records, self._source, self._correlation)
