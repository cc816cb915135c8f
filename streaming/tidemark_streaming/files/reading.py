"""The rows of files, as the engine reads them, each with its place."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.column_type import simple_type
from tidemark.define.helper_columns import helper
from tidemark.define.source import Source
from tidemark.store.dead_letters import dead_letter
from tidemark_streaming.feed import CHUNK
from tidemark_streaming.guarded import BLOCK, FILE, ROW
from tidemark_streaming.payloads.text import CORRUPT, Text

PATH = helper("path")
"""The absolute path of the file from which a row comes."""

_PLAIN = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""The usual implementation looks for a file of checksums next to each, and can't name the one of a
file whose name has a colon."""


def text(spark: SparkSession, files: Sequence[Path], source: Source, form: Text) -> DataFrame:
    """Return the rows of files of text: the source's columns, `DEAD`, `PATH`, `BLOCK` and `ROW`."""
    widths: dict[int, list[str]] = {}
    for file in files:
        widths.setdefault(_width(file, source, form), []).append(_literal(file))
    read = [_of_width(spark, paths, w, source, form) for w, paths in sorted(widths.items())]
    return reduce(DataFrame.unionByName, read)


def parquet(
    spark: SparkSession,
    files: Sequence[Path],
    source: Source,
    options: Mapping[str, str | bool],
) -> DataFrame:
    """Return the same of Parquet files: none of their rows is a dead letter.

    Times to the nanosecond are cut to microseconds. Times without a time zone are in the zone of
    the option `timeZone`, by default UTC.
    """
    # The engine reads columns of nanoseconds as numbers, and only so.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    kinds: dict[tuple[Times, Times], list[str]] = {}
    for file in files:
        kinds.setdefault(_times(file, source), []).append(_literal(file))
    read = [
        _of_times(spark, paths, nanos, local, source, options)
        for (nanos, local), paths in sorted(kinds.items(), key=repr)
    ]
    return reduce(DataFrame.unionByName, read)


Times = frozenset[str]
"""Fields of some kind of time."""


def _times(path: Path, source: Source) -> tuple[Times, Times]:
    """Return the TIMESTAMP fields that a Parquet file has to the nanosecond, and those that it has
    without a time zone."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        # The engine says what is wrong with it.
        return Times(), Times()
    kinds = {field.name.lower(): field.type for field in schema}
    wanted = (name for name, kind in source.fields.items() if simple_type(kind) == "timestamp")
    there = {name: kinds[name.lower()] for name in wanted if name.lower() in kinds}
    times = {name: kind for name, kind in there.items() if pa.types.is_timestamp(kind)}
    nanos = Times(name for name, kind in times.items() if kind.unit == "ns")
    return nanos, Times(name for name, kind in times.items() if kind.tz is None)


def _of_times(
    spark: SparkSession,
    paths: list[str],
    nanos: Times,
    local: Times,
    source: Source,
    options: Mapping[str, str | bool],
) -> DataFrame:
    """Return the rows of Parquet files that have such fields."""
    kinds = {name: "BIGINT" if name in nanos else kind for name, kind in source.fields.items()}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    rows = spark.read.format("parquet").schema(schema).options(**options, **_PLAIN).load(paths)
    place, zone = rows.metadataColumn("_metadata"), str(options.get("timeZone", "UTC"))

    def value(field: str) -> Column:
        found = F.col(f"`{field}`")
        if field in nanos:
            found = F.timestamp_micros(
                F.floor(found / F.lit(1000).cast("decimal(4,0)")).cast("bigint")
            )
        return F.to_utc_timestamp(found, zone) if field in local and zone != "UTC" else found

    return rows.select(
        *(value(f).alias(c) for c, f in zip(source.columns, source.fields, strict=True)),
        dead_letter(F.lit(None).cast("string"), F.lit(None)),
        _path(place).alias(PATH),
        F.lit(0).alias(BLOCK),
        place["row_index"].alias(ROW),
    )


def placed(rows: DataFrame, files: Sequence[Path], names: Sequence[str]) -> DataFrame:
    """Return the rows with `CHUNK`, the index of their file, and `FILE`, its name, instead of
    `PATH`."""
    told = [(n, str(p), name) for n, (p, name) in enumerate(zip(files, names, strict=True))]
    kinds = f"{CHUNK} BIGINT, {PATH} STRING, {FILE} STRING"
    index = rows.sparkSession.createDataFrame(told, kinds)
    rows = rows.join(F.broadcast(index), PATH, "left")
    lost = F.raise_error(F.concat(F.lit("The engine has another name for "), PATH))
    return rows.withColumn(CHUNK, F.coalesce(CHUNK, lost)).drop(PATH)


def _width(path: Path, source: Source, form: Text) -> int:
    """How many of the source's columns, from the first on, a file has: the header of one of
    CSV that was written before the source gained columns ends sooner."""
    columns = list(source.fields)
    if form.format != "csv" or form.told.get("header") != "true":
        return len(columns)
    try:
        with (
            pa.input_stream(str(path), "detect") as content,
            io.TextIOWrapper(content, "utf-8-sig", "replace", newline="") as file,
        ):
            sign = form.told.get("sep") or form.told.get("delimiter") or ","
            head = next(csv.reader(file, delimiter=sign[:1]), [])
    except (OSError, csv.Error, pa.ArrowException):
        # The engine says what is wrong with it.
        return len(columns)
    told = [n.strip().lower() for n in head]
    begins = told == [c.lower() for c in columns[: len(told)]]
    return (
        len(told) if begins and source.field_of(source.event_time).lower() in told else len(columns)
    )


def _of_width(
    spark: SparkSession, paths: list[str], width: int, source: Source, form: Text
) -> DataFrame:
    """Files of text that have the first `width` columns; the others are null."""
    fields, columns = list(source.fields.items()), list(source.columns)
    there = dict(fields[:width])
    form = replace(form, columns=there)
    reader = spark.read.format(form.format).schema(form.schema).options(**form.told, **_PLAIN)
    # The parser looks only at the columns that a query needs, and finds only those malformed:
    # this condition, true of every row, makes it need them all.
    text = [F.col(f"`{f}`").cast("string") for f in there]
    corrupt = F.when(F.length(F.concat_ws("", *text)) >= 0, F.col(CORRUPT))
    rows = reader.load(paths)
    place = rows.metadataColumn("_metadata")
    rows = rows.select(
        *(F.col(f"`{f}`") for f in there),
        corrupt.alias(CORRUPT),
        _path(place).alias(PATH),
        place["file_block_start"].alias(BLOCK),
        F.monotonically_increasing_id().alias(ROW),
    )
    given = [F.when(F.isnull(CORRUPT), F.col(f"`{f}`")) for f in there]
    lacking = [F.lit(None).cast(kind) for _, kind in fields[width:]]
    return rows.select(
        *(value.alias(c) for c, value in zip(columns, [*given, *lacking], strict=True)),
        dead_letter(form.reason(), F.encode(CORRUPT, "UTF-8")),
        PATH,
        BLOCK,
        ROW,
    )


def _path(place: Column) -> Column:
    # The engine gives the path as a URI, percent-encoded, where a plus is a plus.
    path = F.url_decode(F.replace(place["file_path"], F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(path, "^file:/+", "/")


def _literal(path: Path) -> str:
    """Return a path in which the engine finds no wildcards."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))
