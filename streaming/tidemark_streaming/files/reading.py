"""The rows of files, as the engine reads them, each with its place."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.source import Source
from tidemark.store.dead_letters import dead_letter
from tidemark_streaming.payloads.text import CORRUPT, Text


def text(spark: SparkSession, files: Sequence[Path], source: Source, form: Text) -> DataFrame:
    """The rows of files of text: the source's columns, `dead_letter`, and their place: `file`,
    `block` and `row`."""
    widths: dict[int, list[str]] = {}
    for file in files:
        widths.setdefault(_width(file, source, form), []).append(_literal(file.absolute()))
    read = [_of_width(spark, paths, w, source, form) for w, paths in sorted(widths.items())]
    return reduce(DataFrame.unionByName, read)


def parquet(
    spark: SparkSession,
    files: Sequence[Path],
    source: Source,
    options: Mapping[str, str | bool],
) -> DataFrame:
    """The same, of files of Parquet: none of their rows is a dead letter."""
    paths = [_literal(file.absolute()) for file in files]
    schema = ", ".join(f"`{n}` {t}" for n, t in source.columns.items())
    rows = spark.read.format("parquet").schema(schema).options(**options).load(paths)
    return rows.select(
        *(F.col(f"`{c}`") for c in source.columns),
        dead_letter(F.lit(None).cast("string"), F.lit(None)),
        _file().alias("file"),
        F.lit(0).alias("block"),
        F.col("_metadata.row_index").alias("row"),
    )


def _width(path: Path, source: Source, form: Text) -> int:
    """How many of the source's columns, from the first on, a file has: the header of one of
    CSV that was written before the source gained columns ends sooner."""
    columns = list(source.columns)
    if form.format != "csv" or form.told.get("header") != "true":
        return len(columns)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            sign = form.told.get("sep") or form.told.get("delimiter") or ","
            head = next(csv.reader(file, delimiter=sign[:1]), [])
    except (OSError, csv.Error):
        # The engine says what is wrong with it.
        return len(columns)
    told = [n.strip().lower() for n in head]
    begins = told == [c.lower() for c in columns[: len(told)]]
    return len(told) if begins and source.event_time.lower() in told else len(columns)


def _of_width(
    spark: SparkSession, paths: list[str], width: int, source: Source, form: Text
) -> DataFrame:
    """Files of text that have the first `width` columns; the others are null."""
    there = dict(list(source.columns.items())[:width])
    columns, form = list(there), replace(form, columns=there)
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
    lacking = list(source.columns.items())[width:]
    return rows.select(
        *(F.when(F.isnull(CORRUPT), F.col(f"`{c}`")).alias(c) for c in columns),
        *(F.lit(None).cast(kind).alias(name) for name, kind in lacking),
        dead_letter(form.reason(), F.encode(CORRUPT, "UTF-8")),
        "file",
        "block",
        "row",
    )


def _file() -> Column:
    # The engine gives the name percent-encoded, where a plus is a plus.
    return F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))


def _literal(path: Path) -> str:
    """A path in which the engine finds no wildcards."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))
