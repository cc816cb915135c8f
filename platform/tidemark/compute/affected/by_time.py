"""Determine whether arrivals without events change an asset's windows, because time passes.

Such arrivals, for example heartbeats, add nothing to a window. They need a run only if the
watermark or the processing clock passes an instant at which a window fires or becomes final.
Otherwise a later run processes them, with the same result, because results do not depend on how
arrivals are divided into runs.

The functions read the asset's state, the timeline and the ledger without the engine. The statistics
of the tables' files let the functions skip almost all rows.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.tables import LEDGER
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.conditions import Condition, Equals, InRanges, at_least, less_than
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.commits.ranges import Ranges, merge_ranges

_Read = Callable[[str, Sequence[Condition], Sequence[str]], pa.Table | None]
"""A function that returns some columns of the rows of a table that satisfy all conditions.

It returns None if the table does not exist.
"""


def can_change(
    read: _Read,
    transform: WindowedTransform,
    table_id: str | None,
    from_position: TimelinePosition,
    to_position: TimelinePosition,
) -> bool:
    """Return whether arrivals without events can change windows of an asset or of its roll-ups.

    True may be wrong: it is possible that nothing changes. False is always right.

    Args:
        table_id: the identity of the asset's state.
        from_position: the position through which the asset is up to date.
        to_position: the position after the arrivals.
    """
    if to_position.watermark == INFINITY:
        return True
    return (
        _can_pass_window_end(read, transform, from_position, to_position)
        or _can_pass_rollup_end(read, transform, table_id, from_position, to_position)
        or _can_reach_tick(read, transform, from_position, to_position)
    )


def find_passed_ends(
    transform: WindowedTransform, from_position: TimelinePosition, to_position: TimelinePosition
) -> Ranges | None:
    """Return the ranges of the ends of windows that close or become final between two positions.

    Return None if no window does.
    """
    if to_position.watermark is None or to_position.watermark == from_position.watermark:
        return None
    start = BEGINNING
    if from_position.watermark is not None:
        start = from_position.watermark + 1
    end = to_position.watermark + 1
    ranges: list[tuple[int, int]] = []
    # A window closes at its end, and becomes final after the allowed lateness.
    for delay in (0, transform.allowed_lateness):
        if end - delay > BEGINNING:
            ranges.append((max(start - delay, BEGINNING), end - delay))
    return merge_ranges(ranges) or None


def _can_pass_window_end(
    read: _Read,
    transform: WindowedTransform,
    from_position: TimelinePosition,
    to_position: TimelinePosition,
) -> bool:
    """Return whether a window that has events closes or becomes final.

    For sessions, the ends of fragments are compared: each session ends where one of its fragments
    does.
    """
    ends = find_passed_ends(transform, from_position, to_position)
    if ends is None:
        return False
    return _has_rows(read, transform.state_table, [InRanges("window_end", ends)], "window_end")


def _can_pass_rollup_end(
    read: _Read,
    transform: WindowedTransform,
    table_id: str | None,
    from_position: TimelinePosition,
    to_position: TimelinePosition,
) -> bool:
    """Return whether the asset has a roll-up with a window that can close or become final
    between two positions.

    A roll-up's window ends where a window of its base could end, even one without events. The base
    then needs a commit, because a roll-up processes only commits of its base.
    """
    if transform.window.period is None or table_id is None:
        return False
    # The last window that starts before an instant is the first to end at this instant or later.
    first_end = transform.window.last_window_end
    ends = find_passed_ends(transform, from_position, to_position)
    if ends is None or not any(first_end(start) < end for start, end in ends):
        return False
    rows = read(LEDGER, [Equals("mode", "rollup")], ["table_id"])
    runs = [] if rows is None else rows["table_id"].to_pylist()
    return any(run.startswith(f"{table_id}+") for run in runs)


def _can_reach_tick(
    read: _Read,
    transform: WindowedTransform,
    from_position: TimelinePosition,
    to_position: TimelinePosition,
) -> bool:
    """Return whether the processing clock reaches an instant at which a trigger fires events.

    These instants are the multiples of the trigger's interval. Only events that have arrived since
    the last multiple fire at the next one.
    """
    if from_position.clock is None or to_position.clock is None:
        return False
    for firing in (transform.trigger.early, transform.trigger.late):
        if firing.clock_interval is None:
            continue
        last = from_position.clock // firing.clock_interval * firing.clock_interval
        waiting: list[Condition] = [
            at_least("rows", 1),
            less_than("arrival", from_position.arrival + 1),
            InRanges("arrived_at", ((last, last + firing.clock_interval),)),
        ]
        due = to_position.clock >= last + firing.clock_interval
        if due and _has_rows(read, transform.source.timeline_table, waiting, "arrival"):
            return True
    return False


def _has_rows(read: _Read, table: str, bounds: Sequence[Condition], column: str) -> bool:
    rows = read(table, bounds, [column])
    return rows is not None and rows.num_rows > 0
