"""Read Parquet files with the engine, each row with its position."""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.column_type import simple_type
from tidemark.define.helper_columns import helper
from tidemark.define.source import Source
from tidemark.store.event_log.dead_letters import dead_letter
from tidemark_streaming.connector import CHUNK
from tidemark_streaming.ingest.row_masking import BLOCK, FILE, ROW
from tidemark_streaming.payloads.payload import misfit_reason

PATH = helper("path")
"""The absolute path of the file from which a row comes."""

_PLAIN = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""The default implementation looks for a checksum file next to each file. It can't build the name
of that file if the file's own name has a colon."""


def read_rows(
    spark: SparkSession,
    files: Sequence[Path],
    source: Source,
    options: Mapping[str, str | bool],
) -> DataFrame:
    """Return the rows of files: the source's columns, `DEAD`, `PATH`, `BLOCK` and `ROW`.

    A row with a time that is finer than microseconds is a dead letter. Times without a time zone
    are in the zone of the option `timeZone`, by default UTC.
    """
    # The engine can read columns of nanoseconds only as numbers.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    kinds: dict[tuple[Times, Times], list[str]] = {}
    for file in files:
        kinds.setdefault(_times(file, source), []).append(_escape_wildcards(file))
    read = [
        _read_with_times(spark, paths, nanos, local, source, options)
        for (nanos, local), paths in sorted(kinds.items(), key=repr)
    ]
    return reduce(DataFrame.unionByName, read)


Times = frozenset[str]
"""Names of timestamp fields."""


def _times(path: Path, source: Source) -> tuple[Times, Times]:
    """Return the TIMESTAMP fields that a Parquet file stores in nanoseconds, and those that it
    stores without a time zone."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        # The engine reports the error when it reads the file.
        return Times(), Times()
    kinds = {field.name.lower(): field.type for field in schema}
    wanted = (name for name, kind in source.fields.items() if simple_type(kind) == "timestamp")
    existing = {name: kinds[name.lower()] for name in wanted if name.lower() in kinds}
    times = {name: kind for name, kind in existing.items() if pa.types.is_timestamp(kind)}
    nanos = Times(name for name, kind in times.items() if kind.unit == "ns")
    return nanos, Times(name for name, kind in times.items() if kind.tz is None)


def _read_with_times(
    spark: SparkSession,
    paths: list[str],
    nanos: Times,
    local: Times,
    source: Source,
    options: Mapping[str, str | bool],
) -> DataFrame:
    """Return the rows of Parquet files with the fields `nanos` in nanoseconds, and `local` without
    a time zone.
    """
    kinds = {name: "BIGINT" if name in nanos else kind for name, kind in source.fields.items()}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    rows = spark.read.format("parquet").schema(schema).options(**options, **_PLAIN).load(paths)
    place, zone = rows.metadataColumn("_metadata"), str(options.get("timeZone", "UTC"))

    def value(field: str) -> Column:
        found = F.col(f"`{field}`")
        if field in nanos:
            found = F.timestamp_micros(F.expr(f"`{field}` div 1000"))
        return F.to_utc_timestamp(found, zone) if field in local and zone != "UTC" else found

    finer = [
        F.when(F.col(f"`{field}`") % 1000 != 0, F.lit(misfit_reason(field, "TIMESTAMP")))
        for field in sorted(nanos)
    ]
    reason = F.coalesce(*finer, F.lit(None).cast("string"))
    values = [F.when(F.isnull(reason), value(field)) for field in source.fields]
    return rows.select(
        *(each.alias(name) for name, each in zip(source.columns, values, strict=True)),
        dead_letter(reason, F.lit(None)),
        _path(place).alias(PATH),
        F.lit(0).alias(BLOCK),
        place["row_index"].alias(ROW),
    )


def with_positions(rows: DataFrame, files: Sequence[Path], names: Sequence[str]) -> DataFrame:
    """Return the rows with `CHUNK`, the index of their file, and `FILE`, its name, instead of
    `PATH`."""
    numbered = [(n, str(p), name) for n, (p, name) in enumerate(zip(files, names, strict=True))]
    kinds = f"{CHUNK} BIGINT, {PATH} STRING, {FILE} STRING"
    index = rows.sparkSession.createDataFrame(numbered, kinds)
    rows = rows.join(F.broadcast(index), PATH, "left")
    lost = F.raise_error(F.concat(F.lit("The engine reports an unknown path, "), PATH))
    return rows.withColumn(CHUNK, F.coalesce(CHUNK, lost)).drop(PATH)


def _path(place: Column) -> Column:
    # The engine returns the path as a percent-encoded URI, in which a plus means a plus.
    path = F.url_decode(F.replace(place["file_path"], F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(path, "^file:/+", "/")


def _escape_wildcards(path: Path) -> str:
    """Return a path with its wildcards escaped for the engine."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))
