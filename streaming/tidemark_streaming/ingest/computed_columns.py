"""Compute the columns of a source that are SQL expressions over the record (`Source.computed`).

The engine evaluates the expressions, because they are Spark SQL, also for rows in memory. Only the
columns that an expression can use are sent to it. A row for which an expression fails becomes a
dead letter, so that it does not stop the other rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError, summarize_error
from tidemark.define.column_type import simple_type
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.event_log.dead_letters import DEAD, dead_letter, dead_letters_of
from tidemark.store.rows import Rows, to_frame
from tidemark.store.rows import compute as pc
from tidemark_streaming.connector import CONTENT
from tidemark_streaming.ingest.row_masking import mask_column
from tidemark_streaming.payloads.column_types import arrow_type

_ROW = name_helper("row")
_ITEM = name_helper("item")


def compute_columns(
    spark: SparkSession, source: Source, rows: Rows | Iterator[pa.Table]
) -> Rows | Iterator[pa.Table]:
    """Return the rows of a connector with the computed columns, and without transient fields.

    Rows that have the computed columns already are returned unchanged.

    Raises:
        DefinitionError: an expression is not valid, or does not have the type of its column.
    """
    if not source.computed:
        return rows
    if isinstance(rows, DataFrame):
        if source.mask.keys().isdisjoint(source.computed):
            return _in_engine(source, rows)
        # Columns are protected in this process.
        rows = fetch_dataframe(rows)
    if isinstance(rows, pa.Table):
        return compute_in_memory(spark, source, rows)
    return (compute_in_memory(spark, source, table) for table in rows)


def compute_in_memory(spark: SparkSession, source: Source, rows: pa.Table) -> pa.Table:
    """Return rows in memory as `compute_columns` returns them."""
    if set(source.computed) <= set(rows.column_names):
        return rows
    needed = _needed_columns(source)
    numbers = pa.array(range(len(rows)), pa.int64())
    sent = rows.select(needed).append_column(_ROW, numbers)
    records = to_frame(spark, sent)
    check_types(source, records)
    computed = fetch_dataframe(
        records.select(
            F.col(_ROW), *computed_columns(source).values(), failure_reason(source).alias(DEAD)
        )
    )
    computed = computed.sort_by(_ROW)
    reasons = {n: text for n, text in enumerate(computed[DEAD].to_pylist()) if text is not None}
    columns = dict[str, Any]()
    for name in rows.column_names:
        if name not in (*source.transient_fields, DEAD, CONTENT):
            columns[name] = rows[name]
    for name in source.computed:
        columns[name] = computed[name].cast(arrow_type(source.columns[name]))
    result = pa.table(columns)
    for name in source.mask.keys() & source.computed.keys():
        columns[name] = mask_column(result, source, name)
    # All tables of a commit have the same columns.
    columns[DEAD] = _dead_letters(rows, reasons)
    return pa.table(columns)


def computed_columns(source: Source) -> dict[str, Column]:
    """Return each computed column: null if its expression fails."""
    columns = dict[str, Column]()
    for name, expression in source.computed.items():
        value = F.when(~_expression_fails(expression), F.expr(expression))
        columns[name] = value.alias(name)
    return columns


def failure_reason(source: Source) -> Column:
    """Return why the computed columns of a row can't be computed; null if they can."""
    reasons = list[Column]()
    for name, expression in source.computed.items():
        reason = F.lit(f"The column '{name}' can't be computed.")
        reasons.append(F.when(_expression_fails(expression), reason))
    return F.coalesce(*reasons)


def check_types(source: Source, rows: DataFrame) -> None:
    """Refuse expressions that are not valid over the rows, or have another type than their column.

    The type must be the same, because a conversion could change the value.
    """
    for name, expression in source.computed.items():
        subject = f"Source '{source.name}': the expression of the column '{name}', {expression!r},"
        try:
            (field,) = rows.select(F.expr(expression)).schema.fields
        except AnalysisException as error:
            raise DefinitionError(
                f"{subject} can't be computed from the columns {', '.join(source.record_columns)}: "
                f"{summarize_error(error)}."
            ) from None
        actual = field.dataType.simpleString()
        if actual != simple_type(source.columns[name]):
            declared = source.columns[name]
            raise DefinitionError(
                f"{subject} has the type {actual.upper()}, but the column is declared as "
                f"{declared}: "
                f"write CAST({expression} AS {declared}), or declare it as {actual.upper()}."
            )


def _expression_fails(expression: str) -> Column:
    """Return the condition that the evaluation of an expression fails."""
    # `try_to_binary` returns null if the evaluation of its argument fails, and text can always be
    # converted to UTF-8. Spark may evaluate parts that occur twice in an expression before the
    # expression itself, where their failure would end the query. It does not look for such parts
    # inside of a lambda function.
    value = f"transform(array(0), {_ITEM} -> ({expression}))"
    return F.expr(f"try_to_binary(CAST({value} AS STRING), 'utf-8')").isNull()


def _in_engine(source: Source, rows: DataFrame) -> DataFrame:
    if set(source.computed) <= set(rows.columns):
        return rows
    check_types(source, rows)
    reason = failure_reason(source)
    letter = dead_letter(reason, F.lit(None))
    if DEAD in rows.columns:
        letter = F.coalesce(F.col(DEAD), letter).alias(DEAD)
    columns = list[Column]()
    for name in rows.columns:
        if name != DEAD and name not in source.transient_fields:
            columns.append(F.col(f"`{name}`"))
    columns += computed_columns(source).values()
    columns.append(letter)
    return rows.select(columns)


def _needed_columns(source: Source) -> list[str]:
    """Return the columns that an expression may use: those whose names it contains."""
    text = " ".join(source.computed.values()).lower()
    return [name for name in source.record_columns if name.lower() in text]


def _dead_letters(rows: pa.Table, reasons: Mapping[int, str]) -> Any:  # noqa: ANN401 (an array)
    """Return the dead letters of rows: those that the rows have already, and those with a
    reason."""
    record = dict[str, Any]()
    if CONTENT in rows.column_names:
        fields = rows.select([CONTENT]).flatten()
        names = [name.removeprefix(f"{CONTENT}.") for name in fields.column_names]
        record = dict(zip(names, fields.columns, strict=True))
    letters = dead_letters_of(len(rows), reasons, record)
    if DEAD not in rows.column_names:
        return letters
    earlier_letters = rows[DEAD]
    return pc.if_else(
        pc.is_valid(earlier_letters), earlier_letters, letters.cast(earlier_letters.type)
    )
