"""Compute the rows of a chain: the published windows of an asset, as events.

A window belongs to the first step after which nothing can change it (`Chain.wait`). The asset has
published the arrivals of all steps, so its published table has the final row of each such window.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.settling import find_settling_step
from tidemark.define.derived.chain import FIRST, LAST, Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.ranges import NOWHERE
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps


def chain_rows(source: DerivedSource, chain: Chain, logs: Sequence[Log], steps: Steps) -> DataFrame:
    """Return the rows of these steps, as `compute.derived.rows` does."""
    (log,), asset = logs, chain.asset
    base, ends = log.source.name, NOWHERE
    before, advances = steps.watermark_before(base), steps.advances(base)
    if advances:
        first = BEGINNING if before is None else max(before - chain.wait + 1, BEGINNING)
        reached = advances[-1][0]
        ends = ((first, (reached if reached == INFINITY else reached - chain.wait) + 1),)
    windows = log.warehouse.read(asset.table, InRanges("window_end", ends)).where("final")
    _check_types(source, windows)
    # The watermark of a source that has ended is not beyond all windows and their lateness.
    settled = F.least(F.unix_micros("window_end") + F.lit(chain.wait), F.lit(INFINITY)) - 1
    last = F.timestamp_micros(F.unix_micros("window_end") - 1)
    order = Window.partitionBy(STEP).orderBy("window_end", "window_start", *asset.keys)
    return (
        windows.withColumn(STEP, find_settling_step(settled, before, advances))
        .where(f"{STEP} >= 0")
        .select(
            STEP,
            (F.row_number().over(order) - 1).cast("bigint").alias("position"),
            F.concat_ws(" ", F.lit(asset.name), F.to_json(F.struct(*asset.by_window))).alias(
                "read_from"
            ),
            F.lit(None).cast("string").alias("correlation_id"),
            *asset.keys,
            *asset.aggregates,
            F.col("window_start").alias(FIRST),
            last.alias(LAST),
        )
    )


def _check_types(source: DerivedSource, windows: DataFrame) -> None:
    """Refuse windows whose columns have other types than the chain.

    Raises:
        DefinitionError: the message names the right types.
    """
    found = {field.name: field.dataType.simpleString() for field in windows.schema}
    wrong = {c: found[c] for c, kind in source.columns.items() if found.get(c, kind) != kind}
    if wrong:
        column, kind = next(iter(wrong.items()))
        raise DefinitionError(
            f"Chain '{source.name}' has the column '{column}' as {source.columns[column]}, but it "
            f"is {kind} in its asset. Specify types={wrong!r} in the definition of the chain."
        )
