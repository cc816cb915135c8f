"""Feeds: how outside data becomes arrivals.

A feed looks at the outside world, says which arrivals are pending after those already in the
timeline, and reads their rows. It keeps nothing itself: the timeline's positions are its memory,
so it goes on where the timeline ends, whatever was killed or deleted in between.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark.store.dead_letters import dead_letter
from tidemark.store.rows import Rows, frame
from tidemark_streaming.guarded import check, guarded
from tidemark_streaming.payloads.text import CORRUPT, Text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Ahead",
    "Arrival",
    "Chunk",
    "Decoder",
    "Excerpt",
    "Feed",
    "FileFeed",
    "Inlet",
    "Landed",
    "Player",
    "Span",
]


@dataclass(frozen=True)
class Chunk:
    """One arrival to be.

    Example:
        Chunk(position='{"through": 1000}', arrived_at=1_767_225_600_000_000)  # 2026-01-01

    Args:
        position: where the feed stands after it, as JSON; it comes back in the timeline.
        arrived_at: processing time, in microseconds; never before that of the chunk before.
        bytes: its size, as far as it is known before it is read.
        rows: how many rows it has at most, where that is known before it is read.
        watermark: the watermark after it, for the `Manual` strategy.
        end: whether the stream ends with it.
        waiting: values of the watermark's column of which more comes with later chunks, as far as
            the feed knows: they are not silent, whatever this one brings of them.
    """

    position: str
    arrived_at: int
    bytes: int = 0
    rows: int = 0
    watermark: int | None = None
    end: bool = False
    waiting: tuple[str, ...] = ()


class Feed(Protocol):
    """A source's way in."""

    @property
    def source(self) -> Source: ...

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        """What has come since, in the order in which it arrives, given all arrivals so far."""
        ...

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        """The rows of `chunks`, protected as the source declares: for the engine, or in memory.

        A feed whose `protects` is not true brings in no source with protected columns.

        Beside the source's columns: `chunk` BIGINT, index in `chunks`; `position` BIGINT, from 0
        on in each chunk and growing, the same whenever it is read; `read_from` STRING. Where some
        may not fit the source's columns, which are null then, `dead_letter`, as the function of
        that name makes it. Where the feed knows them, `correlation_id` STRING, null for that of
        the log's own making, and `bytes` BIGINT, what is added to the sizes that `chunks` tell.
        """
        ...

    def explain(self, error: PySparkException) -> DataError | None:
        """What is wrong with the data, when that is what the engine's error says."""
        ...


@runtime_checkable
class Ahead(Protocol):
    """A feed that reads while what it read before is worked on."""

    def ahead(self, chunks: Sequence[Chunk]) -> None:
        """Begin to read what will be asked for next; with no chunk, give up what was begun."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """A feed of which some rows may not fit the source's columns."""

    def decode(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        """The rows of dead letters, which may have been mended, as `read` gives them.

        Args:
            letters: as their table has them, and `chunk`, in each of which `position` counts anew.
        """
        ...


@runtime_checkable
class Noticing(Protocol):
    """A feed that notices fields which its source does not declare, and passes over."""

    def undeclared(self) -> Mapping[int, tuple[str, ...]]:
        """Of each chunk of the last `read`, by its index, those that were seen, if any."""
        ...


class Player(Protocol):
    """Plays recorded data as files that land in a folder, for a feed to find."""

    def __call__(self, landing: Path, excerpt: "Excerpt") -> Iterator["Landed"]:
        """Write the files of an excerpt, one for each span, and yield each when it is there.

        A file that is there already is yielded and not written again.

        Args:
            landing: the folder, created if need be.
        """
        ...


@dataclass(frozen=True)
class Excerpt:
    """What of a recording is played, and how.

    Example:
        Excerpt(start="2013-01-01", days=3, span="6 hours")

    Args:
        start: where to begin, ISO 8601; by default with the first record.
        end: where to stop, exclusive; by default after the last record.
        days: how many days from `start`, instead of `end`.
        span: processing time covered by one file.
        speed: seconds of the recording for each second that passes; without one, at once.
    """

    start: str | None = None
    end: str | None = None
    days: int | None = None
    span: str = "6 hours"
    speed: float | None = None


@dataclass(frozen=True)
class Landed:
    """A file that a player wrote: the `number`th of `total`, counted from 1."""

    path: Path
    number: int
    total: int


@dataclass(frozen=True)
class Span:
    """What arrived in a span of processing time: the `number`th of `total`, counted from 1.

    Args:
        records: the source's columns, in the order in which they arrived; instants are text.
        ends: when the span ends, in microseconds.
    """

    records: "pd.DataFrame"
    ends: int
    number: int
    total: int


@dataclass(frozen=True)
class Inlet:
    """A source's way in as a domain offers it, in its module `feed`.

    Example:
        Inlet(source=visits, feed=lambda landing: FileFeed(visits, landing))

    Args:
        source: the source.
        feed: makes its feed for a landing folder.
        play: plays its recorded data into a landing folder, if it has any.
        spans: its recorded data by spans of processing time, for another way in than files.
        references: by name, what reads a reference of the source that the domain brings along; the
            table is made of it where it is not there yet, and is the user's from then on.
    """

    source: Source
    feed: Callable[[Path], Feed]
    play: Player | None = None
    spans: Callable[[Excerpt], Iterator[Span]] | None = None
    references: Mapping[str, Callable[[SparkSession], DataFrame]] = field(
        default_factory=dict[str, Callable[[SparkSession], DataFrame]]
    )


@dataclass(frozen=True)
class FileFeed:
    """Files that land in a folder: each is one arrival.

    They arrive in the order of (modification time, name); an arrival's processing time is the
    file's modification time, or that of the arrival before where that is later. Each file is read
    once, recognised by its name, so one that turns up with an old modification time is not missed:
    it is the next arrival. A file is written under a name that begins with `.` or `_` and renamed
    when it is complete: such names, and sub-folders, are left alone. What has been ingested must
    not change; a file that has grown since is refused, because its new rows would be lost.

    A row that can't be parsed is a dead letter. An empty file is a heartbeat. What the source
    protects is protected in the memory of this process, where a commit's rows are once.

    Example:
        FileFeed(visits, Path("landing/visits"), format="csv", options={"header": True})

    Args:
        source: whose events they are.
        path: the folder, which the engine must see under the same path.
        format: csv (the source's columns in this order; a header may end sooner, with files of
            before the source gained columns), json (one object a line) or parquet.
        options: the engine's reader options, such as `header` or `nullValue`.
        accept_change: take rows as dead letters also where all of a file's fail on one column.
    """

    source: Source
    path: Path
    format: Literal["csv", "json", "parquet"] = "csv"
    options: Mapping[str, str | bool] = field(default_factory=dict)
    accept_change: bool = False
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self.source, f"The feed of source '{self.source.name}'")

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        positions = (json.loads(arrival.position) for arrival in timeline)
        # A source may have come from elsewhere before.
        done = {p["file"]: p["bytes"] for p in positions if "file" in p}
        clock = timeline[-1].arrived_at if timeline else None
        chunks: list[Chunk] = []
        for modified, name, size in self._files():
            if name in done:
                self._check_unchanged(name, size, done[name])
                continue
            clock = modified if clock is None else max(clock, modified)
            chunks.append(Chunk(json.dumps({"file": name, "bytes": size}), clock, size))
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        names = [json.loads(c.position)["file"] for c in chunks]
        # Beyond this number of paths the engine lists them by a job, ten times as slow for files.
        spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
        rows = self._parquet(spark, names) if self.format == "parquet" else self._text(spark, names)
        index = spark.createDataFrame(list(enumerate(names)), "chunk BIGINT, file STRING")
        if self.source.protect:
            return guarded(rows.join(F.broadcast(index), "file"), self.source)
        order = Window.partitionBy("file").orderBy("block", "row")
        place = F.col("row") if self.format == "parquet" else F.row_number().over(order) - 1
        rows = rows.withColumn("position", place.cast("bigint"))
        return rows.join(F.broadcast(index), "file").select(
            *(F.col(f"`{c}`") for c in self.source.columns),
            "chunk",
            "position",
            F.concat_ws("#", "file", "position").alias("read_from"),
            "dead_letter",
        )

    def decode(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        if self.format == "parquet":
            raise DataError(
                f"Source '{self.source.name}' comes as Parquet, which is read in whole files: its "
                "dead letters are of another format, whose feed alone can decode them."
            )
        if self.source.protect:
            raise DataError(
                f"Source '{self.source.name}' has protected columns and comes as files: put mended "
                "rows in a new file."
            )
        rows = self._format.decode(frame(spark, letters), F.col("bytes").cast("string"))
        return rows.select(
            *(F.when(F.isnull("reason"), F.col(f"event.`{c}`")).alias(c) for c in self._columns),
            "chunk",
            "position",
            "read_from",
            "correlation_id",
            dead_letter(F.col("reason"), F.col("bytes")),
        )

    def explain(self, error: PySparkException) -> DataError | None:
        """What is wrong with a file, when that is what the engine complains of."""
        condition = error.getCondition() or ""
        if not condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
            return None
        path = (error.getMessageParameters() or {}).get("path", str(self.path))
        reason = f"it is damaged, or no {self.format}"
        if "CSV header" in str(error):
            reason = f"its header must name the columns {', '.join(self.source.columns)}"
        elif condition.endswith("COLUMN_DATA_TYPE_MISMATCH"):
            reason = str(error).partition("Parquet column ")[2].partition(". SQLSTATE")[0]
            reason = f"column {reason}"
        elif "NOT_FOUND" in condition or "NOT_EXIST" in condition:
            reason = "it is not there, or the engine can't see it"
        return DataError(
            f"File '{path.removeprefix('file://')}' of source '{self.source.name}' can't be read: "
            f"{reason}; mend it or move it out of the folder."
        )

    def _files(self) -> list[tuple[int, str, int]]:
        try:
            files = [p for p in self.path.iterdir() if not p.name.startswith((".", "_"))]
            facts = [(p, p.stat()) for p in files if p.is_file()]
        except FileNotFoundError:
            raise DataError(
                f"Nothing has ever landed for '{self.source.name}': there is no folder "
                f"'{self.path}'."
            ) from None
        except OSError as error:
            raise DataError(
                f"Folder '{self.path}' of source '{self.source.name}' can't be read: "
                f"{(error.strerror or str(error)).lower()}."
            ) from error
        return sorted((s.st_mtime_ns // 1000, p.name, s.st_size) for p, s in facts)

    def _check_unchanged(self, name: str, size: int, before: int) -> None:
        if size != before:
            raise DataError(
                f"File '{self.path / name}' of source '{self.source.name}' has changed since it "
                f"was ingested ({before} bytes then, {size} now): put new rows in a new file."
            )

    @property
    def _columns(self) -> list[str]:
        return list(self.source.columns)

    @property
    def _format(self) -> Text:
        return Text("json" if self.format == "json" else "csv", self.source.columns, self.options)

    def _text(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        widths: dict[int, list[str]] = {}
        for name in names:
            widths.setdefault(self._width(name), []).append(_literal(self.path.absolute() / name))
        read = [self._of_width(spark, paths, width) for width, paths in sorted(widths.items())]
        return reduce(DataFrame.unionByName, read)

    def _width(self, name: str) -> int:
        """How many of the source's columns, from the first on, a file has: the header of one of
        CSV that was written before the source gained columns ends sooner."""
        columns, form = self._columns, self._format
        if self.format != "csv" or form.told.get("header") != "true":
            return len(columns)
        try:
            with (self.path / name).open(
                encoding="utf-8-sig", errors="replace", newline=""
            ) as file:
                sign = form.told.get("sep") or form.told.get("delimiter") or ","
                head = next(csv.reader(file, delimiter=sign[:1]), [])
        except (OSError, csv.Error):
            # The engine says what is wrong with it.
            return len(columns)
        told = [n.strip().lower() for n in head]
        begins = told == [c.lower() for c in columns[: len(told)]]
        return len(told) if begins and self.source.event_time.lower() in told else len(columns)

    def _of_width(self, spark: SparkSession, paths: list[str], width: int) -> DataFrame:
        """Files of text that have the first `width` columns; the others are null."""
        there = dict(list(self.source.columns.items())[:width])
        columns, form = list(there), replace(self._format, columns=there)
        reader = spark.read.format(form.format).schema(form.schema).options(**form.told)
        # The parser looks only at the columns that a query needs, and finds only those malformed:
        # this condition, true of every row, makes it need them all.
        text = [F.col(f"`{c}`").cast("string") for c in columns]
        corrupt = F.when(F.length(F.concat_ws("", *text)) >= 0, F.col(CORRUPT))
        rows = reader.load(paths).select(
            *(F.col(f"`{c}`") for c in columns),
            corrupt.alias(CORRUPT),
            _file().alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("row"),
        )
        lacking = list(self.source.columns.items())[width:]
        return rows.select(
            *(F.when(F.isnull(CORRUPT), F.col(f"`{c}`")).alias(c) for c in columns),
            *(F.lit(None).cast(kind).alias(name) for name, kind in lacking),
            dead_letter(form.reason(), F.encode(CORRUPT, "UTF-8")),
            "file",
            "block",
            "row",
        )

    def _parquet(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        paths = [_literal(self.path.absolute() / name) for name in names]
        schema = ", ".join(f"`{n}` {t}" for n, t in self.source.columns.items())
        rows = spark.read.format("parquet").schema(schema).options(**self.options).load(paths)
        return rows.select(
            *(F.col(f"`{c}`") for c in self.source.columns),
            dead_letter(F.lit(None).cast("string"), F.lit(None)),
            _file().alias("file"),
            F.lit(0).alias("block"),
            F.col("_metadata.row_index").alias("row"),
        )


def _file() -> Column:
    # The engine gives the name percent-encoded, where a plus is a plus.
    return F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))


def _literal(path: Path) -> str:
    """A path in which the engine finds no wildcards."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))
