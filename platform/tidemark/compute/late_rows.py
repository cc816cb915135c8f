"""Compute the late table (too-late events) and the late loss (how these would change windows).

No event is dropped silently. The asset's late table records each event that is too late for a
window, with the window and the lag. It also records each event that belongs to no window, for
example because it has no event time. For every window that lacks too-late events, the late loss
shows the streamed values next to the values with these events. The difference is the cost of the
chosen allowed lateness.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.compute.windowing import as_of, classify_scope, finish_windows
from tidemark.define import classification
from tidemark.define.definition import COMPLETE
from tidemark.define.helper_columns import ADMITTED, FIRST, HAPPENED_AT, VERDICT
from tidemark.define.source import untimed_reason
from tidemark.define.transform import WindowedTransform
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import NO_COMMIT
from tidemark.store.event_log.log import Log
from tidemark.store.rows import delta_schema, spark_schema
from tidemark.store.warehouse import Warehouse


def select_late_table_events(
    log: Log, transform: WindowedTransform, commit_info: StateCommit
) -> DataFrame:
    """Return a commit's events that were too late for a window, or that belong to no window."""
    events = classify_scope(log, transform, commit_info.counted_scope())
    verdict = F.col(VERDICT)
    has_time = transform.source.has_possible_time & F.col(HAPPENED_AT).isNotNull()
    reason = F.when(verdict != classification.NO_EVENT_TIME, "too_late")
    reason = reason.when(has_time, "window_out_of_range")
    reason = reason.otherwise(untimed_reason(F.col(f"`{transform.source.event_time}`")))
    lag = (F.unix_micros("watermark") - F.unix_micros(HAPPENED_AT)) / 1e6
    commit_number = uncompiled_literal(commit_info.commit_number)
    late = events.where(verdict.isin(classification.TOO_LATE, classification.NO_EVENT_TIME))
    described = late.withColumns(
        {"lateness_seconds": lag, "reason": reason, "commit_number": commit_number}
    )
    return described.drop(VERDICT, ADMITTED, HAPPENED_AT, FIRST)


def add_missing_columns(
    warehouse: Warehouse, transform: WindowedTransform, events: DataFrame
) -> DataFrame:
    """Return late events, with null in the columns that only the late table has.

    If the source or the function has gained or lost columns since the table was created, the
    existing rows of the table stay unchanged.
    """
    columns = [F.col("*")]
    for field in _late_table_schema(warehouse, transform).fields:
        if field.name not in events.columns:
            columns.append(F.lit(None).cast(field.dataType).alias(field.name))
    return events.select(columns)


def find_changed_types(warehouse: Warehouse, transform: WindowedTransform, log: Log) -> list[str]:
    """Return a description of each column of late events that has another type in the late table.

    The list is empty if the late table does not exist.
    """
    stored_fields = _late_table_schema(warehouse, transform).fields
    if not stored_fields:
        return []
    stored_types = {field.name: field.dataType.simpleString() for field in stored_fields}
    changed: list[str] = []
    for field in select_late_table_events(log, transform, NO_COMMIT).schema.fields:
        stored_type = stored_types.get(field.name)
        current_type = field.dataType.simpleString()
        if stored_type is not None and stored_type != current_type:
            changed.append(f"{field.name} ({stored_type} → {current_type})")
    return changed


def _late_table_schema(warehouse: Warehouse, transform: WindowedTransform) -> StructType:
    """Return the columns of the late table; no columns if the table does not exist."""
    if not warehouse.has_table(transform.late_table):
        return StructType()
    return spark_schema(delta_schema(warehouse.read_schema(transform.late_table)))


def compute_late_loss(
    stored: DataFrame, transform: WindowedTransform, log: Log, commit_info: StateCommit
) -> DataFrame:
    """Return the windows that lack too-late events, with `lost_events`, the number of these events.

    If the commit only adds events, return only the windows that lack too-late events of this
    commit, and count only these events in `lost_events`.

    For each aggregate `x`, the column `x` has the streamed value (null if the stream has no such
    window), and `x_complete` the value with the too-late events.
    """
    window_columns = transform.by_window
    window = F.struct(window_columns)
    current = as_of(commit_info.after)
    is_missed = classification.is_uncounted()
    if commit_info.recomputed_ranges is None:
        is_missed = is_missed & (
            F.col("commit_number") == uncompiled_literal(commit_info.commit_number)
        )
    # Only merging shows which fragments share a session with a too-late event. So keep all
    # fragments that have the keys of such an event.
    join_columns = window_columns
    if transform.window.merges:
        join_columns = list(transform.keys)
    if join_columns:
        identity = F.struct(join_columns)
        lacking = stored.where(is_missed).select(identity.alias("_lacking")).distinct()
        stored = stored.join(lacking, identity.eqNullSafe(F.col("_lacking")), "left_semi")
    is_admitted = F.col(VERDICT) <= classification.TOO_LATE
    missed_events = F.when(is_missed, F.col("events"))
    all_admitted = stored.withColumns({ADMITTED: is_admitted, "_missed": missed_events})
    lost_events = F.sum("_missed").alias("lost_events")
    complete = finish_windows(all_admitted, transform, log, current, lost_events)
    streamed = finish_windows(stored, transform, log, current)
    streamed = streamed.select(window.alias("_some"), *transform.aggregates)
    columns: list[str | Column] = []
    columns += window_columns
    columns += ["lost_events", window.alias("_all")]
    columns += [F.col(name).alias(f"{name}{COMPLETE}") for name in transform.aggregates]
    lost_windows = complete.where("lost_events > 0").select(columns)
    is_same_window = F.col("_all").eqNullSafe(F.col("_some"))
    joined = lost_windows.join(streamed, is_same_window, "left").drop("_all", "_some")
    return joined.withColumn("commit_number", uncompiled_literal(commit_info.commit_number))
