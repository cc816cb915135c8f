"""Derive the changes of each window from a version of a published table.

A run, a release from quarantine, a backfill and a correction each change a published table in one
version. The change data feed has the rows before and after. A change combines both for one window.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.base import thresholds
from tidemark.store.rows import to_display

Row = dict[str, Any]
_T = TypeVar("_T")

_OLD = ("delete", "update_preimage")
_NEW = ("insert", "update_postimage")


@dataclass(frozen=True)
class Change:
    """The change of one published row, from which the panes to publish are determined.

    Args:
        before, after: the row before and after the change; `before` is None for a new row, and
            `after` for a deleted row.
        recomputed: true if a recomputation of the window deleted the row and inserted it again.
    """

    before: Row | None
    after: Row | None
    recomputed: bool = False


def split_versions(feed: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each version of a change data feed, in order."""
    for version in sorted(feed["_commit_version"].unique().to_pylist()):
        yield feed.filter(pc.field("_commit_version") == version)


def derive_changes(rows: pa.Table, window_columns: Sequence[str]) -> Iterator[Change]:
    """Yield the changes of one version: deleted windows first, then new and changed ones.

    An instant beyond the year 9999, which Python can't represent, is text. A row that was replaced
    by an identical row is not a change.

    Args:
        window_columns: the columns that identify a window.
    """
    kinds = rows["_change_type"].to_pylist()
    key_columns = [_to_python(rows[column]) for column in window_columns]
    old = dict[str, int]()
    new = dict[str, int]()
    for number, key in enumerate(zip(*key_columns, strict=True)):
        if kinds[number] in _OLD:
            old[repr(key)] = number
        elif kinds[number] in _NEW:
            new[repr(key)] = number
    values = rows.drop_columns(["_change_type", "_commit_version"])
    deleted = [number for window, number in old.items() if window not in new]
    for piece in _split_entries(deleted):
        for row in _take_rows(values, piece):
            yield Change(row, None)
    for piece in _split_entries(list(new.items())):
        old_numbers = [old[window] for window, _ in piece if window in old]
        befores = iter(_take_rows(values, old_numbers))
        afters = _take_rows(values, [number for _, number in piece])
        for (window, _), after in zip(piece, afters, strict=True):
            before = next(befores) if window in old else None
            if not are_equal(before, after):
                recomputed = window in old and kinds[old[window]] == "delete"
                yield Change(before, after, recomputed)


def rows_as_changes(rows: pa.Table) -> Iterator[Change]:
    """Yield a change for each row of a table, as if its window were new."""
    for batch in rows.to_batches(max_chunksize=thresholds.SINK_BATCH_WINDOWS):
        for row in to_display(pa.Table.from_batches([batch])):
            yield Change(None, row)


def _split_entries(entries: list[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(entries), thresholds.SINK_BATCH_WINDOWS):
        yield entries[start : start + thresholds.SINK_BATCH_WINDOWS]


def _take_rows(rows: pa.Table, numbers: list[int]) -> list[dict[str, Any]]:
    # Without a type, Arrow infers a null type for an empty list, which `take` does not accept.
    return to_display(rows.take(pa.array(numbers, pa.int64())))


def are_equal(value: Any, other_value: Any) -> bool:  # noqa: ANN401 (any value of a column)
    """Return whether two values of a table are equal, as the engine does: NaN equals NaN."""
    return _unify_nans(value) == _unify_nans(other_value)


def _unify_nans(value: Any) -> Any:  # noqa: ANN401 (any value of a column)
    """Return a value with one object for all NaNs, which Python's containers compare as equal."""
    match value:
        case float() if math.isnan(value):
            return math.nan
        case dict():
            return {name: _unify_nans(part) for name, part in value.items()}
        case list() | tuple():
            return [_unify_nans(part) for part in value]
        case _:
            return value


def _to_python(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.to_pylist()
