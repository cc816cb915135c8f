"""Files as a way in: each that lands in a folder becomes an arrival."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark.store.dead_letters import dead_letter
from tidemark.store.rows import Rows, frame
from tidemark_streaming.feed import Chunk
from tidemark_streaming.files import reading
from tidemark_streaming.guarded import check, guarded
from tidemark_streaming.payloads.text import Text


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
        files = [self.path / name for name in names]
        if self.format == "parquet":
            rows = reading.parquet(spark, files, self.source, self.options)
        else:
            rows = reading.text(spark, files, self.source, self._format)
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
                f"'{self.path}'. Make it and put files there, or correct the setting landing."
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
