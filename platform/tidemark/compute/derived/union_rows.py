"""Compute the rows of a union."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.derived.base_rows import (
    ARRIVAL,
    CORRELATION,
    POSITION,
    ROW,
    STEP,
    origin_of,
    read_new,
)
from tidemark.define.derived import union
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps


def union_rows(
    source: DerivedSource, derivation: union.Union, logs: Sequence[Log], steps: Steps
) -> DataFrame:
    parts = list[DataFrame]()
    for log, names in zip(logs, derivation.columns, strict=True):
        base_columns = {union_column: base_column for base_column, union_column in names.items()}
        columns = [
            F.col(STEP),
            F.col(POSITION).alias("position"),
            origin_of(log.source, ARRIVAL, POSITION).alias("read_from"),
            F.col(CORRELATION).alias("correlation_id"),
        ]
        for name, kind in source.columns.items():
            if name in derivation.added_columns:
                continue
            column = F.lit(None).cast(kind)
            if name in base_columns:
                column = F.col(f"{ROW}.`{base_columns[name]}`")
            columns.append(column.alias(name))
        columns += [
            F.lit(log.source.name).alias(union.ORIGIN),
            F.col(ARRIVAL).alias(union.LINEAGE[0]),
            F.col(POSITION).alias(union.LINEAGE[1]),
        ]
        parts.append(read_new(log, steps).select(columns))
    return reduce(DataFrame.unionByName, parts)
