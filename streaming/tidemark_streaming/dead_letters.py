"""Dead letters: which there are, and how mended ones come back, each once.

A replay is an arrival like any other: it brings the events of some dead letters, decoded anew, and
its position in the timeline names the letters:

    {"replayed": [[3, 17, 17], [3, 40, 52]]}

It brought those of arrival 3 at the positions 17 and 40 to 52. So the commit that brings them back
is the one that marks them: a replay that is killed has done both or neither, and one that is made
again finds nothing to do. The table of dead letters itself only grows.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark.store.rows import FEW
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.feed import CHUNK, DEAD, Chunk, Decoder, Feed
from tidemark_streaming.glance import Glance
from tidemark_streaming.ingest import ingest

Place = tuple[int, int]
"""Which letter: its arrival, and its position there."""

BRIEF = ("arrival", "position", "arrived_at", "read_from", "correlation_id", "reason", "topic")
"""The columns of dead letters without their content."""

_MARK = "replayed"


def standing(glance: Glance, source: str, columns: Sequence[str] = BRIEF) -> pa.Table:
    """The dead letters of a source, in their order; with `replayed_by`, the arrival that brought
    them back, null where none has.

    Args:
        columns: of their table, at least `arrival` and `position`.
    """
    timeline = glance.timeline(source)
    found = glance.read(f"{source}_dead_letters", list(columns))
    if found is None:
        types = dict.fromkeys((*columns, "replayed_by"), pa.null())
        return pa.schema(types | {"reason": pa.string()}).empty_table()
    # A writer that died may have left some beyond the timeline.
    newest = timeline[-1].arrival if timeline else -1
    found = found.filter(ds.field("arrival") <= newest)
    found = found.sort_by([("arrival", "ascending"), ("position", "ascending")])
    marks = replayed(timeline)
    by = pa.array([marks.get(place) for place in places(found)], pa.int64())
    return found.append_column("replayed_by", by)


def waiting(glance: Glance, source: str) -> int:
    """How many dead letters of a source have not come back."""
    return standing(glance, source, ("arrival", "position"))["replayed_by"].null_count


def places(letters: pa.Table) -> list[Place]:
    """Which letters these are."""
    columns = (letters[name].to_pylist() for name in ("arrival", "position"))
    return list(zip(*columns, strict=True))


def replayed(timeline: Sequence[Arrival]) -> dict[Place, int]:
    """The letters that came back, each with the arrival that brought it."""
    # The first of those that name it: an arrival without rows may stand where the last one did.
    return {place: one.arrival for one in reversed(timeline) for place in returned(one.position)}


def returned(position: str) -> Iterator[Place]:
    """The letters that an arrival at this position brought back."""
    told = json.loads(position)
    ranges = told.get(_MARK) if isinstance(told, dict) else None
    # A topic may have that name, and is told as an object.
    for arrival, first, last in ranges if isinstance(ranges, list) else ():
        yield from ((arrival, p) for p in range(first, last + 1))


@dataclass(frozen=True)
class Outcome:
    """What became of letters that were decoded anew.

    Args:
        arrivals: what brought back those that fit now.
        brought: how many these are.
        refused: those that don't, each with the reason: they stay what they are.
    """

    arrivals: tuple[Arrival, ...]
    brought: int
    refused: Mapping[Place, str]


def replay(warehouse: Warehouse, feed: Feed, letters: pa.Table) -> Outcome:
    """Decode dead letters anew, and bring those that fit into the log, as new arrivals.

    The arrivals' processing time is now, and they are judged by the watermark as it stands. Letters
    that came back before are passed over.

    Args:
        feed: the source's, which decodes them.
        letters: as their table has them, `bytes` perhaps mended.

    Raises:
        ConflictError: an ingest of the source is running.
        DataError: the feed can't decode single rows, or the stream has ended.
    """
    if not letters.num_rows:
        return Outcome((), 0, {})
    if not isinstance(feed, Decoder):
        raise DataError(f"The feed of source '{feed.source.name}' decodes no dead letters.")
    number = pa.array(range(letters.num_rows), pa.int64())
    numbered = letters.set_column(letters.column_names.index("position"), "position", number)
    numbered = numbered.append_column(CHUNK, pa.array([0] * letters.num_rows, pa.int64()))
    rows = feed.decode(numbered).sort_by("position")
    rows = rows.drop_columns([CHUNK, "position", "read_from", "correlation_id"])
    for name in ("arrival", "position", "read_from", "correlation_id"):
        rows = rows.append_column(name, letters[name])
    refused, fit = dict[Place, str](), rows
    if DEAD in rows.column_names:
        found = zip(places(rows), rows[DEAD].to_pylist(), strict=True)
        refused = {place: letter["reason"] for place, letter in found if letter is not None}
        fit = rows.filter(ds.field(DEAD).is_null()).drop_columns([DEAD])
    commits = list(ingest(warehouse, _Mended(feed.source, fit)))
    arrivals = tuple(arrival for commit in commits for arrival in commit.arrivals)
    return Outcome(arrivals, sum(a.rows for a in arrivals), refused)


@dataclass(frozen=True)
class _Mended:
    """Dead letters that fit now, as a feed: `rows` with the letters' arrivals and positions."""

    source: Source
    rows: pa.Table
    protects: ClassVar[bool] = True

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        done = replayed(timeline)
        left = [place for place in places(self.rows) if place not in done]
        clock = max([time.time_ns() // 1000, *(a.arrived_at for a in timeline[-1:])])
        pieces = [left[n : n + FEW] for n in range(0, len(left), FEW)]
        return [Chunk(_written(piece), clock, rows=len(piece)) for piece in pieces]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        which = {
            p: (n, i) for n, c in enumerate(chunks) for i, p in enumerate(returned(c.position))
        }
        wanted = pa.array([place in which for place in places(self.rows)])
        rows = self.rows.filter(wanted)
        chunk, position = zip(*(which[place] for place in places(rows)), strict=True)
        rows = rows.drop_columns(["arrival", "position"])
        rows = rows.append_column(CHUNK, pa.array(chunk, pa.int64()))
        return rows.append_column("position", pa.array(position, pa.int64()))

    def explain(self, error: PySparkException) -> DataError | None:
        return None


def _written(letters: Iterable[Place]) -> str:
    """The position of an arrival that brings some letters back."""
    ranges = list[list[int]]()
    for arrival, position in sorted(letters):
        if ranges and (ranges[-1][0], ranges[-1][2]) == (arrival, position - 1):
            ranges[-1][2] = position
        else:
            ranges.append([arrival, position, position])
    return json.dumps({_MARK: ranges}, separators=(",", ":"))
