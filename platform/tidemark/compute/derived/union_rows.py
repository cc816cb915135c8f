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
        base_columns = {new: column for column, new in names.items()}
        columns = [
            (
                F.col(f"{ROW}.`{base_columns[name]}`")
                if name in base_columns
                else F.lit(None).cast(kind)
            ).alias(name)
            for name, kind in source.columns.items()
            if name not in derivation.added_columns
        ]
        parts.append(
            read_new(log, steps).select(
                STEP,
                F.col(POSITION).alias("position"),
                origin_of(log.source, ARRIVAL, POSITION).alias("read_from"),
                F.col(CORRELATION).alias("correlation_id"),
                *columns,
                F.lit(log.source.name).alias(union.ORIGIN),
                F.col(ARRIVAL).alias(union.LINEAGE[0]),
                F.col(POSITION).alias(union.LINEAGE[1]),
            )
        )
    return reduce(DataFrame.unionByName, parts)
