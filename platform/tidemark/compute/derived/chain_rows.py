"""Compute the rows of a chain: the windows of an asset, as events.

A final window belongs to the first step after which nothing can change it (`Chain.wait`). The asset
has published the arrivals of all steps, so its published table has the final row of each of them.

With `changes`, a step has the firings of its arrival, and before each of them the rows that it
replaces. The asset's state has the partials of all firings, of every run.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute import slot
from tidemark.compute.affected.closed_windows import open_range
from tidemark.compute.compare import exact_json
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.settling import add_settling_step
from tidemark.compute.lifecycle import lifecycle
from tidemark.compute.pane import as_of
from tidemark.compute.pane_table import list_values
from tidemark.compute.rollups import assign_windows_within
from tidemark.define.derived.chain import FIRST, LAST, RETRACTION, Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import FIRED, PHASE, helper
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import InRanges
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.ranges import NOWHERE
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_FIRED_WINDOW = [helper("fired_end"), helper("fired_start")]
"""The window of a firing, which may have replaced a row of another window."""


def chain_rows(source: DerivedSource, chain: Chain, logs: Sequence[Log], steps: Steps) -> DataFrame:
    (log,), asset = logs, chain.asset
    if chain.rows == "changes":
        rows = _list_changes(chain, log, steps)
        order, marks = [*_FIRED_WINDOW, *asset.keys, "pane", ~F.col(RETRACTION)], [RETRACTION]
    else:
        rows, order, marks = _final_windows(chain, log, steps), [], list[str]()
    _check_types(source, rows)
    by = Window.partitionBy(STEP).orderBy(*order, "window_end", "window_start", *asset.keys)
    origin = exact_json(*(F.col(f"`{name}`") for name in asset.by_window))
    return rows.select(
        STEP,
        (F.row_number().over(by) - 1).cast("bigint").alias("position"),
        F.concat_ws(" ", F.lit(asset.name), origin).alias("read_from"),
        F.lit(None).cast("string").alias("correlation_id"),
        *asset.keys,
        *asset.aggregates,
        F.col("window_start").alias(FIRST),
        F.timestamp_micros(F.unix_micros("window_end") - 1).alias(LAST),
        *marks,
    )


def _final_windows(chain: Chain, log: Log, steps: Steps) -> DataFrame:
    """Return the windows that become final in these steps."""
    base, ends = log.source.name, NOWHERE
    before, advances = steps.watermark_before(base), steps.advances(base)
    if advances:
        first = BEGINNING if before is None else max(before - chain.wait + 1, BEGINNING)
        reached = advances[-1][0]
        ends = ((first, (reached if reached == INFINITY else reached - chain.wait) + 1),)
    windows = log.warehouse.read(chain.asset.table, InRanges("window_end", ends)).where("final")
    return _add_passing_step(windows, F.lit(chain.wait), log, steps).where(f"{STEP} >= 0")


def _list_changes(chain: Chain, log: Log, steps: Steps) -> DataFrame:
    """Return the values of the firings in these steps, with those that they replace."""
    base, asset = log.source.name, Asset(log.warehouse, chain.asset)
    before, through = steps.span(base)
    marks = {a.arrival: a.after for a in steps.arrivals[base]}
    then = Coverage(TimelinePosition(before, steps.watermark_before(base)))
    now = Coverage(TimelinePosition(through, marks[through]))
    transform = replace(chain.asset, accumulation="retracting")
    stored = assign_windows_within(asset, asset.state.read, now, open_range(transform, then))
    fired = lifecycle(transform).list_firings(stored, transform, log, as_of(now))
    # A slot of its own fires with its arrival. The state may have later arrivals.
    alone = F.col(PHASE).isin(slot.EARLY, slot.LATE)
    at_end = F.col(PHASE) == slot.ON_TIME
    wait = F.when(at_end, 0).otherwise(transform.allowed_lateness)
    fired = fired.where(slot.has_fired_since(transform, as_of(then)))
    fired = _add_passing_step(fired, wait, log, steps)
    step = F.when(alone, F.col(FIRED) - F.lit(before + 1)).otherwise(F.col(STEP))
    bounds = zip(_FIRED_WINDOW, ("window_end", "window_start"), strict=True)
    fired = fired.withColumns(
        {STEP: step.cast("int"), **{name: F.col(bound) for name, bound in bounds}}
    )
    fired = fired.where(f"{STEP} BETWEEN 0 AND {through - before - 1}")
    return list_values(fired, transform, [STEP, "pane", *_FIRED_WINDOW])


def _add_passing_step(windows: DataFrame, wait: Column, log: Log, steps: Steps) -> DataFrame:
    """Return windows with `STEP`: the first after which the watermark is past the end by `wait`."""
    base = log.source.name
    before, advances = steps.watermark_before(base), steps.advances(base)
    # The watermark of a source that has ended is not beyond all windows and their lateness.
    settled = F.least(F.unix_micros("window_end") + wait, F.lit(INFINITY)) - 1
    return add_settling_step(windows, STEP, settled, before, advances)


def _check_types(source: DerivedSource, windows: DataFrame) -> None:
    """Refuse windows whose columns have other types than the chain."""
    found = {field.name: field.dataType.simpleString() for field in windows.schema}
    wrong = {c: found[c] for c, kind in source.columns.items() if found.get(c, kind) != kind}
    if wrong:
        column, kind = next(iter(wrong.items()))
        raise DefinitionError(
            f"Chain '{source.name}' has the column '{column}' as {source.columns[column]}, but it "
            f"is {kind} in its asset. Specify types={wrong!r} in the definition of the chain."
        )
