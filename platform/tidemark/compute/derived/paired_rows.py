"""Functions that the computations of joins and as-of joins share.

A row *takes part* in a join if it has a valid event time that is not too old. The oldest allowed
event time is the row's watermark minus the allowed lateness. The row's watermark is the effective
watermark of its base before its arrival. If the allowed lateness is None, no event time is too old.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.compute.compare import struct_as_json
from tidemark.compute.derived.base_rows import (
    ARRIVAL,
    CORRELATION,
    MARK,
    POSITION,
    ROW,
    STEP,
    TIME,
    origin_of,
)
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import LINEAGE, Pairing
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source, untimed_reason
from tidemark.store.event_log.dead_letters import DEAD, dead_letter

LATE = "too_late"
KIND = name_helper("kind")
"""The kind of a row, INT. Within a step, the rows are in the order of their kinds."""
_SIDES = (LINEAGE[:2], LINEAGE[2:])


def name_side(
    letter: str, base: Source, rows: DataFrame, lateness: int | None, **more: Column
) -> DataFrame:
    """Return rows of a base with the column names of their side.

    The column `DEAD` has the reason if a row takes no part.

    Args:
        letter: `l` or `r`. It prefixes the names of the columns, and is also the name of the struct
            with the row's own columns.
        rows: as `base_rows` reads them.
        lateness: how far behind its watermark a row may be to take part, in microseconds; None for
            no limit.
        more: further columns.
    """
    return rows.select(
        *(F.col(c).alias(f"{letter}{c}") for c in (STEP, TIME, ARRIVAL, POSITION, CORRELATION)),
        F.col(ROW).alias(letter),
        F.col(MARK).alias(f"{letter}{MARK}"),
        explain_absence(base, lateness).alias(f"{letter}{DEAD}"),
        *(column.alias(f"{letter}{name}") for name, column in more.items()),
    )


def explain_absence(base: Source, lateness: int | None) -> Column:
    """Return the reason why a row of a base takes no part; null if the row takes part.

    Args:
        lateness: how far behind its watermark a row may be to take part, in microseconds; None for
            no limit.
    """
    written = F.col(f"{ROW}.`{base.event_time}`")
    reason = F.when(F.col(TIME).isNull(), untimed_reason(written))
    if lateness is None:
        return reason
    return reason.when(F.col(TIME) < F.col(MARK) - F.lit(lateness), LATE)


def select_taking_part(letter: str, rows: DataFrame) -> DataFrame:
    return rows.where(f"{letter}{DEAD} IS NULL")


def select_columns(join: Pairing) -> list[Column]:
    """Return the columns of pairs: keys, columns of the left side and of the right, and lineage."""
    columns = [F.coalesce(f"l.`{key}`", f"r.`{key}`").alias(key) for key in join.on]
    for letter, names in (("l", join.left_columns), ("r", join.right_columns)):
        columns += [
            F.col(f"{letter}.`{base_column}`").alias(joined_column)
            for base_column, joined_column in names.items()
        ]
    base_columns = [f"{letter}{column}" for letter in "lr" for column in (ARRIVAL, POSITION)]
    return columns + [
        F.col(base_column).alias(joined_column)
        for base_column, joined_column in zip(base_columns, LINEAGE, strict=True)
    ]


def finish_joined_rows(
    source: DerivedSource, paired: DataFrame, sides: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows of a join, with the columns that `StepsToCompute.compute_rows` describes.

    New rows of the bases that take no part in the join are added as dead letters.

    Args:
        paired: the rows of the join, with `STEP`, `KIND`, `read_from`, `correlation_id`, and the
            columns of the source.
        sides: the rows of each side by letter, as `name_side` returns them.
    """
    none = dead_letter(F.lit(None).cast("string"), F.lit(None))
    bases = zip("lr", source.base_sources, strict=True)
    unjoined = [_select_unjoined(letter, sides[letter], base, source) for letter, base in bases]
    # Dead letters are numbered separately, so a query for the other rows does not compute them.
    dead = _number_by_step(reduce(DataFrame.unionByName, unjoined))
    return _number_by_step(paired).select("*", none).unionByName(dead)


def _number_by_step(rows: DataFrame) -> DataFrame:
    """Return rows with their position in their step, sorted within each partition."""
    # The engine sorts by one number much faster than by several columns, and rows that are almost
    # in order faster than others. So first sort by one number, which several rows can share.
    terms = [f"(coalesce({left}, {right}) & 2097151)" for left, right in zip(*_SIDES, strict=True)]
    approximate_order = F.expr(
        f"BIGINT({STEP}) << 44 | BIGINT({KIND}) << 42 | {terms[0]} << 21 | {terms[1]}"
    )
    order = Window.partitionBy(STEP).orderBy(KIND, *LINEAGE)
    position = (F.row_number().over(order) - 1).cast("bigint").alias("position")
    return (
        rows.repartition(STEP)
        .sortWithinPartitions(approximate_order)
        .select("*", position)
        .drop(KIND)
    )


def _select_unjoined(
    letter: str, rows: DataFrame, base: Source, source: DerivedSource
) -> DataFrame:
    """Return, as dead letters, the new rows of a side that take no part in the join."""
    reason = F.concat(f"{letter}{DEAD}", F.lit(f" in {base.name}"))
    lineage: dict[str, Any] = dict.fromkeys(LINEAGE, F.lit(None).cast("bigint"))
    lineage_names = _SIDES["lr".index(letter)]
    lineage |= {
        lineage_names[0]: F.col(f"{letter}{ARRIVAL}"),
        lineage_names[1]: F.col(f"{letter}{POSITION}"),
    }
    empty = [
        F.lit(None).cast(kind).alias(name)
        for name, kind in source.columns.items()
        if name not in LINEAGE
    ]
    return rows.where(f"{letter}{DEAD} IS NOT NULL AND {letter}{STEP} >= 0").select(
        F.col(f"{letter}{STEP}").alias(STEP),
        F.lit("lr".index(letter)).alias(KIND),
        origin_of(base, f"{letter}{ARRIVAL}", f"{letter}{POSITION}").alias("read_from"),
        F.col(f"{letter}{CORRELATION}").alias("correlation_id"),
        *empty,
        *(column.alias(name) for name, column in lineage.items()),
        dead_letter(reason, struct_as_json(F.col(letter)).cast("binary"), certain=True),
    )
