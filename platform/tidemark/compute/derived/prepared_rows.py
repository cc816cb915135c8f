"""Compute the rows of a row asset."""

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError, summarize_error
from tidemark.compute.compare import exact_json
from tidemark.compute.derived.base_rows import STEP, origin_of
from tidemark.compute.events import plan_check
from tidemark.compute.events.prepare import call_function
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.row_asset import RowAsset
from tidemark.define.derived.union import LINEAGE
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps


def prepared_rows(
    source: DerivedSource, derivation: RowAsset, logs: Sequence[Log], steps: Steps
) -> DataFrame:
    (log,) = logs
    preparation = derivation.preparation
    arrival_before, through = steps.arrival_span(log.source.name)
    try:
        plan_check.check_function(log, preparation)
        rows = call_function(
            log, preparation, log.read_events(arrival_before, through), arrival_before, through
        )
        _check_types(source, rows)
    except AnalysisException as error:
        raise DefinitionError(
            f"Asset '{source.name}': the engine can't analyze its function on the columns of "
            f"'{log.source.name}': {summarize_error(error)}. Correct the function."
        ) from None
    columns = [F.col(f"`{c}`") for c in source.columns if c not in LINEAGE]
    # A function may turn one row into several, which differ only in their values.
    order = Window.partitionBy("arrival").orderBy("position", exact_json(columns))
    # Each arrival of the only base is a step.
    return rows.select(
        (F.col("arrival") - F.lit(arrival_before + 1)).cast("int").alias(STEP),
        (F.row_number().over(order) - 1).cast("bigint").alias("position"),
        origin_of(log.source).alias("read_from"),
        "correlation_id",
        *columns,
        F.col("arrival").alias(LINEAGE[0]),
        F.col("position").alias(LINEAGE[1]),
    )


def _check_types(source: DerivedSource, rows: DataFrame) -> None:
    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    for column, kind in source.columns.items():
        if column not in LINEAGE and types[column] != kind:
            raise DefinitionError(
                f"Asset '{source.name}': the column '{column}' of its function's result has the "
                f"type {types[column]}, but is declared as {kind}. Change the declaration, or "
                f"convert it in the function, for example by CAST({column} AS {kind.upper()})."
            )
