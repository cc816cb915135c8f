"""A connector for the arrivals of a case, whose rows are in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from helpers.graph.case import EPOCH_MICROS, SECOND, instant
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.rows import INSTANT
from tidemark_streaming.connector import CHUNK, Chunk

_TYPES = {
    "timestamp": INSTANT,
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
}


@dataclass(frozen=True)
class Sent:
    """An arrival that the outside system has sent.

    Args:
        clock: its processing time, in seconds of the case.
        rows: its rows; their times are in seconds of the case.
        silence: for a heartbeat, the seconds of silence before it.
        erased: the times of rows that were erased later. The watermark that they reached stays.
    """

    clock: int
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    silence: int | None = None
    erased: list[int | None] = field(default_factory=list[int | None])


def typed(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row as the event log has it."""
    return {
        name: instant(row.get(name)) if kind.lower() == "timestamp" else row.get(name)
        for name, kind in columns.items()
    }


@dataclass(frozen=True)
class SentConnector:
    source: Source
    sent: Sequence[Sent]

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [
            Chunk(
                str(number),
                _micros(each.clock),
                silent_since=None if each.silence is None else _micros(each.clock - each.silence),
            )
            for number, each in enumerate(self.sent)
            if number >= len(timeline)
        ]

    def read(self, spark: object, chunks: Sequence[Chunk]) -> pa.Table:
        columns = self.source.columns
        rows = list[dict[str, Any]]()
        for index, chunk in enumerate(chunks):
            for position, row in enumerate(self.sent[int(chunk.position)].rows):
                place = {CHUNK: index, "position": position, "read_from": f"{index}#{position}"}
                rows.append({**typed(row, columns), **place})
        types = {name: _TYPES[kind.lower()] for name, kind in columns.items()}
        types |= {CHUNK: pa.int64(), "position": pa.int64(), "read_from": pa.string()}
        return pa.Table.from_pylist(rows, schema=pa.schema(types))


def _micros(clock: int) -> int:
    return EPOCH_MICROS + clock * SECOND
