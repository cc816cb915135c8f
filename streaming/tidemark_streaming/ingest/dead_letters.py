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
    replaying_arrivals = pa.array(
        [marks.get(letter_place) for letter_place in letter_keys(letters)], pa.int64()
    )
    return letters.append_column("replayed_by", replaying_arrivals)


def letter_keys(letters: pa.Table) -> list[Place]:
    """Return the keys of dead letters: arrival and position."""
    columns = (letters[name].to_pylist() for name in ("arrival", "position"))
    return list(zip(*columns, strict=True))


def find_reprocessed(timeline: Sequence[Arrival]) -> dict[Place, int]:
    """Return the keys of reprocessed dead letters, each with the arrival that reprocessed it."""
    # The first arrival that names a dead letter counts: an arrival without rows may repeat the
    # position of the previous arrival.
    return {
        letter_place: arrival.arrival
        for arrival in reversed(timeline)
        for letter_place in reprocessed_letters(arrival.position)
    }


@dataclass(frozen=True)
class Outcome:
    """The result of decoding dead letters again.

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
        outcomes = zip(letter_keys(rows), rows[DEAD].to_pylist(), strict=True)
        refused = {
            letter_place: letter["reason"]
            for letter_place, letter in outcomes
            if letter is not None
        }
        fit = rows.filter(ds.field(DEAD).is_null()).drop_columns([DEAD])
    commits = list(ingest(warehouse, _CorrectedLetters(connector.source, fit)))
    arrivals = tuple(arrival for commit in commits for arrival in commit.arrivals)
    return Outcome(arrivals, sum(a.rows for a in arrivals), refused)


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
        left = [
            letter_place
            for letter_place in letter_keys(self.rows)
            if letter_place not in reprocessed
        ]
        clock = max([time.time_ns() // 1000, *(a.arrived_at for a in timeline[-1:])])
        pieces = [
            left[n : n + thresholds.SMALL_BATCH_ROWS]
            for n in range(0, len(left), thresholds.SMALL_BATCH_ROWS)
        ]
        return [Chunk(_to_position(piece), clock, rows=len(piece)) for piece in pieces]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        which = {
            p: (n, i)
            for n, c in enumerate(chunks)
            for i, p in enumerate(reprocessed_letters(c.position))
        }
        is_requested = pa.array([letter_place in which for letter_place in letter_keys(self.rows)])
        rows = self.rows.filter(is_requested)
        chunk, position = zip(
            *(which[letter_place] for letter_place in letter_keys(rows)), strict=True
        )
        rows = rows.drop_columns(["arrival", "position"])
        rows = rows.append_column(CHUNK, pa.array(chunk, pa.int64()))
        return rows.append_column("position", pa.array(position, pa.int64()))


def _to_position(letters: Iterable[Place]) -> str:
    ranges = list[list[int]]()
    for arrival, position in sorted(letters):
        if ranges and (ranges[-1][0], ranges[-1][2]) == (arrival, position - 1):
            ranges[-1][2] = position
        else:
            ranges.append([arrival, position, position])
    return json.dumps({REPROCESSED: ranges}, separators=(",", ":"))
