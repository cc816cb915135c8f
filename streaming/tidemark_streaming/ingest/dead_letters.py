"""Find dead letters, and reprocess corrected ones, each once.

Reprocessing adds an arrival like any other. The arrival has the events of some dead letters,
decoded again, and its position in the timeline names these dead letters:

    {"reprocessed dead letters": [[3, 17, 17], [3, 40, 52]]}

This arrival reprocessed the dead letters of arrival 3 at the positions 17 and 40 to 52. One commit
therefore adds the events and marks their dead letters as reprocessed. A process that is killed has
done both or neither. Reprocessing the same dead letters again has no effect. Nothing is removed
from the table of dead letters.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.define.derived.pairing import is_paired
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, DEAD, Chunk, Connector, Decoder
from tidemark_streaming.ingest.computed_columns import compute_in_memory
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.snapshot.history import REPROCESSED, Place, reprocessed_letters
from tidemark_streaming.snapshot.snapshot import Snapshot

BRIEF = ("arrival", "position", "arrived_at", "read_from", "correlation_id", "reason", "topic")
"""The columns of dead letters without their content."""


def read_dead_letters(
    snapshot: Snapshot, source: Source, columns: Sequence[str] = BRIEF
) -> pa.Table:
    """Return the dead letters of a source, in order, with the column `replayed_by`.

    `replayed_by` is the arrival that reprocessed a dead letter, or null if there is none.

    Args:
        columns: columns of the table of dead letters, at least `arrival` and `position`.
    """
    timeline = snapshot.read_timeline(source.name)
    letters = snapshot.tables.read(source.dead_letters_table, list(columns))
    if letters is None:
        types = dict.fromkeys((*columns, "replayed_by"), pa.null())
        return pa.schema(types | {"reason": pa.string()}).empty_table()
    # A writer that died may have left dead letters beyond the timeline.
    newest = timeline[-1].arrival if timeline else -1
    letters = letters.filter(ds.field("arrival") <= newest)
    letters = letters.sort_by([("arrival", "ascending"), ("position", "ascending")])
    marks = find_reprocessed(timeline)
    replaying_arrivals = [marks.get(key) for key in letter_keys(letters)]
    return letters.append_column("replayed_by", pa.array(replaying_arrivals, pa.int64()))


def letter_keys(letters: pa.Table) -> list[Place]:
    """Return the keys of dead letters: arrival and position."""
    arrivals = letters["arrival"].to_pylist()
    positions = letters["position"].to_pylist()
    return list(zip(arrivals, positions, strict=True))


def find_reprocessed(timeline: Sequence[Arrival]) -> dict[Place, int]:
    """Return the keys of reprocessed dead letters, each with the arrival that reprocessed it."""
    # The first arrival that names a dead letter counts: an arrival without rows may repeat the
    # position of the previous arrival.
    reprocessed = dict[Place, int]()
    for arrival in reversed(timeline):
        for key in reprocessed_letters(arrival.position):
            reprocessed[key] = arrival.arrival
    return reprocessed


@dataclass(frozen=True)
class Outcome:
    """The events that dead letters gave when they were decoded again, and the letters that remain.

    Args:
        arrivals: the new arrivals, with the events that could be decoded.
        brought: the number of these events.
        refused: the keys of the dead letters that still can't be decoded, each with the reason.
            They stay dead letters.
    """

    arrivals: tuple[Arrival, ...]
    brought: int
    refused: Mapping[Place, str]


def reprocess_letters(warehouse: Warehouse, connector: Connector, letters: pa.Table) -> Outcome:
    """Decode dead letters again, and add the events that can be decoded to the event log, as new
    arrivals.

    The processing time of the arrivals is now, and the lateness of their events is classified by
    the current watermark. Dead letters that were reprocessed before are skipped.

    Args:
        letters: rows of the table of dead letters, in which `bytes` may be corrected.

    Raises:
        DataError: the connector can't decode dead letters.
    """
    if not letters.num_rows:
        return Outcome((), 0, {})
    if not isinstance(connector, Decoder):
        name = connector.source.name
        noun = connector.source.dead_letter_noun
        if is_paired(connector.source):
            why = (
                "they take no part in the join. To include rows that came too late, increase its "
                f"`allowed_lateness`, then `tidemark drop {name}` and ingest it again."
            )
        else:
            why = "the connector can't decode single rows."
        raise DataError(f"The {noun}s of '{name}' can't be replayed, because {why}")
    number = pa.array(range(letters.num_rows), pa.int64())
    numbered = letters.set_column(letters.column_names.index("position"), "position", number)
    numbered = numbered.append_column(CHUNK, pa.array([0] * letters.num_rows, pa.int64()))
    decoded = compute_in_memory(
        warehouse.spark, connector.source, connector.decode_letters(numbered)
    )
    rows = decoded.sort_by("position")
    rows = rows.drop_columns([CHUNK, "position", "read_from", "correlation_id"])
    for name in ("arrival", "position", "read_from", "correlation_id"):
        rows = rows.append_column(name, letters[name])
    refused = dict[Place, str]()
    fit = rows
    if DEAD in rows.column_names:
        for key, letter in zip(letter_keys(rows), rows[DEAD].to_pylist(), strict=True):
            if letter is not None:
                refused[key] = letter["reason"]
        fit = rows.filter(ds.field(DEAD).is_null()).drop_columns([DEAD])
    arrivals = list[Arrival]()
    for commit in ingest(warehouse, _CorrectedLetters(connector.source, fit)):
        arrivals += commit.arrivals
    brought = sum(arrival.rows for arrival in arrivals)
    return Outcome(tuple(arrivals), brought, refused)


@dataclass(frozen=True)
class _CorrectedLetters:
    """A connector whose pending arrivals are the events of corrected dead letters.

    Args:
        rows: the decoded events, with `arrival` and `position` of their dead letters.
    """

    source: Source
    rows: pa.Table
    protects: ClassVar[bool] = True

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        reprocessed = find_reprocessed(timeline)
        pending = [key for key in letter_keys(self.rows) if key not in reprocessed]
        clock = time.time_ns() // 1000
        if timeline:
            clock = max(clock, timeline[-1].arrived_at)
        chunks = list[Chunk]()
        for start in range(0, len(pending), thresholds.SMALL_BATCH_ROWS):
            piece = pending[start : start + thresholds.SMALL_BATCH_ROWS]
            chunks.append(Chunk(_to_position(piece), clock, rows=len(piece)))
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        requested = dict[Place, tuple[int, int]]()
        for number, chunk in enumerate(chunks):
            for position, key in enumerate(reprocessed_letters(chunk.position)):
                requested[key] = (number, position)
        keys = letter_keys(self.rows)
        rows = self.rows.filter(pa.array([key in requested for key in keys]))
        chunk_numbers = list[int]()
        positions = list[int]()
        for key in letter_keys(rows):
            number, position = requested[key]
            chunk_numbers.append(number)
            positions.append(position)
        rows = rows.drop_columns(["arrival", "position"])
        rows = rows.append_column(CHUNK, pa.array(chunk_numbers, pa.int64()))
        return rows.append_column("position", pa.array(positions, pa.int64()))


def _to_position(letters: Iterable[Place]) -> str:
    ranges = list[list[int]]()
    for arrival, position in sorted(letters):
        if ranges and (ranges[-1][0], ranges[-1][2]) == (arrival, position - 1):
            ranges[-1][2] = position
        else:
            ranges.append([arrival, position, position])
    return json.dumps({REPROCESSED: ranges}, separators=(",", ":"))
