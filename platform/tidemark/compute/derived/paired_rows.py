"""Functions that the computations of joins and as-of joins share.

A row *takes part* in a join if it has a valid event time that is not too old. The oldest allowed
event time is the row's watermark minus the allowed lateness. The row's watermark is the effective
watermark of its base before its arrival. If the allowed lateness is None, no event time is too old.
"""

from collections.abc import Mapping

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
    columns = {name: F.col(name) for name in (STEP, TIME, ARRIVAL, POSITION, CORRELATION)}
    # The struct's name is the letter alone.
    columns[""] = F.col(ROW)
    columns[MARK] = F.col(MARK)
    columns[DEAD] = explain_absence(base, lateness)
    columns |= more
    return rows.select([column.alias(f"{letter}{name}") for name, column in columns.items()])


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
        for base_column, joined_column in names.items():
            columns.append(F.col(f"{letter}.`{base_column}`").alias(joined_column))
    base_columns = (f"l{ARRIVAL}", f"l{POSITION}", f"r{ARRIVAL}", f"r{POSITION}")
    for base_column, joined_column in zip(base_columns, LINEAGE, strict=True):
        columns.append(F.col(base_column).alias(joined_column))
    return columns


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
    no_dead_letter = dead_letter(F.lit(None).cast("string"), F.lit(None))
    left_base, right_base = source.base_sources
    left_unjoined = _select_unjoined("l", sides["l"], left_base, source)
    right_unjoined = _select_unjoined("r", sides["r"], right_base, source)
    # Dead letters are numbered separately, so a query for the other rows does not compute them.
    dead_letters = _number_by_step(left_unjoined.unionByName(right_unjoined))
    joined = _number_by_step(paired).select("*", no_dead_letter)
    return joined.unionByName(dead_letters)


def _number_by_step(rows: DataFrame) -> DataFrame:
    """Return rows with their position in their step, sorted within each partition."""
    # The engine sorts by one number much faster than by several columns, and rows that are almost
    # in order faster than others. So first sort by one number, which several rows can share.
    left_arrival, left_position, right_arrival, right_position = LINEAGE
    arrival_bits = f"(coalesce({left_arrival}, {right_arrival}) & 2097151)"
    position_bits = f"(coalesce({left_position}, {right_position}) & 2097151)"
    approximate_order = F.expr(
        f"BIGINT({STEP}) << 44 | BIGINT({KIND}) << 42 | {arrival_bits} << 21 | {position_bits}"
    )
    order = Window.partitionBy(STEP).orderBy(KIND, *LINEAGE)
    position = (F.row_number().over(order) - 1).cast("bigint").alias("position")
    sorted_rows = rows.repartition(STEP).sortWithinPartitions(approximate_order)
    return sorted_rows.select("*", position).drop(KIND)


def _select_unjoined(
    letter: str, rows: DataFrame, base: Source, source: DerivedSource
) -> DataFrame:
    """Return, as dead letters, the new rows of a side that take no part in the join."""
    side_number = "lr".index(letter)
    arrival_name, position_name = _SIDES[side_number]
    lineage = dict.fromkeys(LINEAGE, F.lit(None).cast("bigint"))
    lineage[arrival_name] = F.col(f"{letter}{ARRIVAL}")
    lineage[position_name] = F.col(f"{letter}{POSITION}")
    columns = [
        F.col(f"{letter}{STEP}").alias(STEP),
        F.lit(side_number).alias(KIND),
        origin_of(base, f"{letter}{ARRIVAL}", f"{letter}{POSITION}").alias("read_from"),
        F.col(f"{letter}{CORRELATION}").alias("correlation_id"),
    ]
    for name, kind in source.columns.items():
        if name not in LINEAGE:
            columns.append(F.lit(None).cast(kind).alias(name))
    columns += [column.alias(name) for name, column in lineage.items()]
    reason = F.concat(f"{letter}{DEAD}", F.lit(f" in {base.name}"))
    content = struct_as_json(F.col(letter)).cast("binary")
    columns.append(dead_letter(reason, content, certain=True))
    is_unjoined = f"{letter}{DEAD} IS NOT NULL AND {letter}{STEP} >= 0"
    return rows.where(is_unjoined).select(columns)
