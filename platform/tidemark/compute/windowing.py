"""Turn events into partials, and partials into the rows of windows.

Each step is a function from DataFrame to DataFrame. Runs, which store partials, and one-off
computations, which store none, use the same functions. `classify_scope` assigns events to windows
and classifies their lateness, `aggregate_events` aggregates the events by window, keys and slot,
and `finish_windows` merges the slots that have fired.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, NumericType

from tidemark.base.determinism import find_nondeterminism
from tidemark.base.errors import DefinitionError, summarize_error
from tidemark.compute import slices, slot
from tidemark.compute.events import plan_check as rowwise
from tidemark.compute.events.prepare import prepare_rows
from tidemark.compute.lifecycle import choose_lifecycle
from tidemark.compute.slot import AsOf
from tidemark.define import classification, uniqueness
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, FIRST, FIRST_EVENTS, HAPPENED_AT, VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.conditions import InRanges, window_starts_in
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log


def read_scope(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """Return the log's rows that may be in one of the scope's windows."""
    start, end = _event_time_bounds(transform, scope)
    return log.read_events(scope.after, scope.through, start, end)


def prepare_scope(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """Return the function's result for the rows that may be in one of the scope's windows."""
    return _prepare_scope(log, transform, scope).drop(uniqueness.MARK, HAPPENED_AT)


def classify_scope(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """Return the prepared events of a scope, with one row for each event and window in the scope.

    Adds the columns `window_start` and `window_end`; `VERDICT`, the event's lateness in the window;
    `ADMITTED`, whether the event counts in the window; and `HAPPENED_AT`, the event time.
    """
    rows = _prepare_scope(log, transform, scope)
    if not transform.deduplicate:
        return _assign_and_classify(rows, transform, scope, None)
    classified = _assign_and_classify(rows, transform, scope, F.col(uniqueness.MARK))
    return classified.drop(uniqueness.MARK)


def count_scope(
    log: Log, transform: WindowedTransform, scope: Scope, earlier_partials: DataFrame | None = None
) -> DataFrame:
    """Return the partials of a scope's events, with the columns of `aggregate_events`.

    Args:
        earlier_partials: the partials of earlier runs, which count triggers need.
    """
    window = slices.shared_slices(transform)
    scope_log = log.limited_to_arrivals(scope.after, scope.through)
    if window is None:
        events = classify_scope(log, transform, scope)
        return aggregate_events(events, transform, scope_log, earlier_partials)
    rows = _prepare_scope(log, transform, scope)
    by_arrival = scope.arrivals is not None
    slice_rows = slices.aggregate_slices(rows, transform, window, by_arrival=by_arrival)
    is_duplicate = None
    if transform.deduplicate:
        is_duplicate = F.col(slices.IS_DUPLICATE)
    events = _assign_and_classify(slice_rows, transform, scope, is_duplicate)
    slotted = slot.assign_slots(events, transform, scope_log, None)
    first_events = F.when(F.col(FIRST), F.col("events")).otherwise(0)
    aggregates = slices.merge_slice_columns(slice_rows, transform)
    aggregates.append(F.sum(first_events).alias(FIRST_EVENTS))
    return slotted.groupBy(slot.group_columns(transform)).agg(*aggregates)


def aggregate_events(
    events: DataFrame,
    transform: WindowedTransform,
    log: Log,
    earlier_partials: DataFrame | None = None,
) -> DataFrame:
    """Return classified events, aggregated by window, keys and slot.

    Columns: window_start, window_end, the keys, `VERDICT`, `ADMITTED`, `SLOT`, events,
    last_arrival, and for each aggregate a column of the same name with its partial. For sessions,
    other columns replace `SLOT` (see `fragments`).

    Args:
        earlier_partials: the partials of earlier runs, which count triggers need.
    """
    columns = [F.count("*").alias("events"), F.max("arrival").alias("last_arrival")]
    columns += [a.partial().alias(name) for name, a in transform.aggregates.items()]
    if transform.window.overlaps:
        columns.append(F.count_if(FIRST).alias(FIRST_EVENTS))
    return choose_lifecycle(transform).aggregate_events(
        events, transform, log, columns, earlier_partials
    )


def _prepare_scope(log: Log, transform: WindowedTransform, scope: Scope) -> DataFrame:
    """Return the function's result for the rows that may be in one of the scope's windows.

    The column `HAPPENED_AT` is the event time, or null if the event time is implausible.
    """
    time_ranges = _event_time_ranges(transform, scope)
    start, end = _event_time_bounds(transform, scope)
    rows = prepare_rows(log, transform, scope.after, scope.through, start, end)
    if len(time_ranges) > 1:
        rows = rows.where(InRanges(transform.source.event_time, time_ranges).to_sql())
    happened = transform.source.valid_event_time(F.unix_micros("arrived_at"))
    return rows.select("*", happened.alias(HAPPENED_AT))


def _event_time_ranges(transform: WindowedTransform, scope: Scope) -> Ranges:
    """Return the ranges of event times that the scope's windows may contain.

    Return an empty tuple if the scope includes all windows.
    """
    reach = transform.window.assigned_extent
    return tuple((start, end + reach) for start, end in scope.ranges)


def _event_time_bounds(transform: WindowedTransform, scope: Scope) -> tuple[int | None, int | None]:
    """Return the bounds [start, end) of the event times that the scope's windows may contain.

    Both bounds are None if the scope includes all windows.
    """
    time_ranges = _event_time_ranges(transform, scope)
    if not time_ranges:
        return None, None
    start = min(range_start for range_start, _ in time_ranges)
    end = max(range_end for _, range_end in time_ranges)
    return start, end


def _assign_and_classify(
    rows: DataFrame, transform: WindowedTransform, scope: Scope, is_duplicate: Column | None
) -> DataFrame:
    """Return events or slices, with one row for each event (or slice) and window in the scope.

    The added columns are those of `classify_scope`.

    Args:
        rows: prepared events, or slices of events.
        is_duplicate: BOOLEAN, true for duplicates of earlier events; None without deduplication.
    """
    end = F.col("window_end")
    watermark = F.col("watermark")
    verdict = classification.classify_lateness(
        end, watermark, transform.allowed_lateness, is_duplicate
    )
    last_admitted = classification.LATE
    if scope.complete:
        last_admitted = classification.TOO_LATE
    admitted = F.col(VERDICT) <= last_admitted
    assigned = transform.window.assign_windows(rows, HAPPENED_AT)
    in_scope = assigned.where(window_starts_in(scope.ranges).to_sql())
    classified = in_scope.select("*", verdict.alias(VERDICT))
    events = classified.select("*", admitted.alias(ADMITTED))
    if scope.arrivals is None:
        return events
    return events.where(scope.arrivals)


def finish_windows(
    stored: DataFrame, definition: Definition, log: Log, current: AsOf, *extra_columns: Column
) -> DataFrame:
    """Return the rows of the windows that have fired as of `current`.

    Args:
        stored: partials, possibly several of a slot.
        extra_columns: further aggregate expressions over the admitted partials.
    """
    return choose_lifecycle(definition).finish_windows(
        stored, definition, log, current, *extra_columns
    )


def as_of(coverage: Coverage) -> AsOf:
    """Return the arrival and the watermark through which a coverage has computed each window."""
    return AsOf(coverage.position_column("arrival"), coverage.position_column("watermark"))


def check_analysis(log: Log, transform: WindowedTransform) -> None:
    """Raise an error if the engine can't run the definition on the log's columns.

    The engine only analyzes the definition, and computes no rows.
    """
    start = AsOf(F.lit(0).cast("bigint"), F.lit(0).cast("bigint"))
    try:
        rowwise.check_function(log, transform.preparation)
        _check_aggregates(log, transform)
        _check_numbers(log, transform)
        added_up = count_scope(log, transform, Scope(0, 0))
        _ = finish_windows(added_up, transform, log, start).schema
    except AnalysisException as error:
        raise DefinitionError(
            f"Asset '{transform.name}': the engine can't analyze its definition on the columns of "
            f"'{transform.source.name}': {summarize_error(error)}. Correct its function, keys or "
            "aggregates."
        ) from None


def _check_aggregates(log: Log, transform: WindowedTransform) -> None:
    """Refuse aggregates that call a function whose result does not depend on the event alone.

    The functions of `tidemark.agg` have checked their SQL expressions. An `Aggregate` of the
    user consists of columns, whose texts also show which functions they call.
    """
    for name, aggregate in transform.aggregates.items():
        # The steps are checked one by one. Their composition repeats the partial wherever a step
        # uses it, so its text can have millions of characters.
        partial = F.col(name)
        for step in (aggregate.partial(), aggregate.merge(partial), aggregate.finish(partial)):
            # The quotes around a column's text are not quotes of SQL.
            text = str(step).removeprefix("Column<'")
            if find_nondeterminism(text) is None:
                continue
            # A column may have the name of a function. The engine is asked only in this rare case.
            columns = _prepare_scope(log, transform, Scope(0, 0)).columns
            fault = find_nondeterminism(text, [*columns, name])
            if fault is None:
                continue
            raise DefinitionError(
                f"Asset '{transform.name}': the aggregate '{name}', {aggregate}, {fault}. Windows "
                "are computed more than once, for example in a backfill, and must be equal each "
                "time: use only columns and functions of columns."
            )


def _check_numbers(log: Log, transform: WindowedTransform) -> None:
    """Refuse sums and means of values that are not numbers, which the engine would convert."""
    number_columns: list[Column] = []
    for name, aggregate in transform.aggregates.items():
        if aggregate.number is not None:
            number_columns.append(aggregate.number().alias(name))
    if not number_columns:
        return
    rows = _prepare_scope(log, transform, Scope(0, 0))
    for field in rows.select(number_columns).schema:
        if not isinstance(field.dataType, NumericType | NullType):
            raise DefinitionError(
                f"Asset '{transform.name}': the aggregate '{field.name}', "
                f"{transform.aggregates[field.name]}, needs numbers, but its values have the type "
                f"{field.dataType.simpleString().upper()}: convert them in the transform's "
                "function, for example by CAST(x AS DECIMAL(10, 2))."
            )
