"""Find the events and dead letters to erase, and the windows that their erasure affects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError, summarize_error
from tidemark.compute.affected import by_events
from tidemark.compute.windowing import classify_scope
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import name_helper
from tidemark.define.rollup import base_transform
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

PLACE = ["arrival", "position"]
"""The columns that identify an event of a log."""
_FIRST = name_helper("first")


def select_added(rows: DataFrame, first_positions: Mapping[int, int]) -> DataFrame:
    """Return the rows that an erasure has added to a derived source.

    Args:
        rows: rows of the derived source.
        first_positions: the position of the first added row, by arrival.
    """
    first_rows = rows.sparkSession.createDataFrame(
        list(first_positions.items()), f"arrival BIGINT, {_FIRST} BIGINT"
    )
    joined = rows.join(F.broadcast(first_rows), "arrival")
    added = joined.where(f"position >= {_FIRST}")
    return added.drop(_FIRST)


def find_events(log: Log, last_arrival: int, where: str) -> DataFrame:
    """Return `arrival` and `position` of the events for which a condition is true.

    Args:
        last_arrival: the last arrival to search.
        where: SQL condition on the columns of the log.

    Raises:
        DefinitionError: the condition is not valid for these columns.
    """
    rows = log.read_events(-1, last_arrival)
    try:
        events = rows.where(F.expr(where)).select(PLACE)
        _ = events.schema
    except AnalysisException as error:
        raise _condition_error(log, where, error) from None
    return events


def find_dead_letters(
    warehouse: Warehouse, log: Log, last_arrival: int, texts: Sequence[str]
) -> DataFrame:
    """Return `arrival` and `position` of the dead letters that contain one of `texts`.

    The search covers the bytes, the key, the headers' values and the correlation id.
    """
    rows = warehouse.read_frame(log.source.dead_letters_table).where(
        F.col("arrival") <= last_arrival
    )
    contains_text = F.lit(False)
    for text in texts:
        contains_text = contains_text | _contains_text(F.lit(text.encode()))
    return rows.where(contains_text).select(PLACE)


def find_affected_windows(
    log: Log, definition: Definition, events: DataFrame, last_arrival: int
) -> Ranges | None:
    """Return the ranges of the starts of the windows that an erasure can change.

    Return None if no window is affected, and `ALL_WINDOWS` if all are. All sessions are affected,
    because a session without one of its events may split in two. All windows are affected if an
    event has no window, because no range contains the partial of such an event.

    Args:
        events: `arrival` and `position` of the events that the erasure deletes or adds.
        last_arrival: the newest arrival of the log.
    """
    base = base_transform(definition)
    if base.deduplicate is not None:
        # If the first event of an id is deleted, a later one is no longer a duplicate.
        rows = log.read_events(-1, last_arrival)
        id_columns = list(base.deduplicate.by)
        erased_rows = rows.join(events, PLACE, "left_semi")
        ids = erased_rows.select([f"`{name}`" for name in id_columns]).distinct()
        same_ids = rows.join(ids, id_columns, "left_semi").select(PLACE)
        events = same_ids.unionByName(events).distinct()
    affected_log = log.with_only(events)
    plain = by_events.without_preparation(base)
    if base.window.merges:
        if affected_log.read_events(-1, last_arrival).isEmpty():
            return None
        return ALL_WINDOWS
    classified = classify_scope(affected_log, plain, Scope(-1, last_arrival))
    if not classified.where("window_start IS NULL").isEmpty():
        return ALL_WINDOWS
    return by_events.find_affected_windows(affected_log, base, 0, last_arrival)


def find_windows_with_events(
    log: Log, definition: Definition, events: DataFrame, last_arrival: int
) -> DataFrame:
    """Return the windows to which the transform assigns events, each with its keys.

    An event has no window if the transform's function filters it out. Duplicates have windows.

    Args:
        events: `arrival` and `position` of the events.
    """
    base = replace(base_transform(definition), deduplicate=None, expectations=())
    rows = classify_scope(log.with_only(events), base, Scope(-1, last_arrival)).where(
        "window_start IS NOT NULL"
    )
    return rows.select(base.by_window).distinct()


def _contains_text(text: Column) -> Column:
    plain = (F.col("bytes"), F.col("key"), F.encode("correlation_id", "UTF-8"))
    contains_text = F.exists("headers", lambda h: F.contains(h["value"], text))
    for column in plain:
        contains_text = F.coalesce(contains_text, F.lit(False)) | F.contains(column, text)
    return F.coalesce(contains_text, F.lit(False))


def _condition_error(log: Log, where: str, error: PySparkException) -> DefinitionError:
    reason = " ".join(summarize_error(error).split())
    return DefinitionError(
        f"The condition \"{where}\" can't select events of '{log.source.name}': it must be a SQL "
        f"condition on the columns {', '.join(log.source.columns)}. {reason[:200].rstrip('.')}."
    )
