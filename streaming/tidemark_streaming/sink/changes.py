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
    """The change of a window's row.

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
    windows = [repr(w) for w in zip(*(_to_python(rows[c]) for c in window_columns), strict=True)]
    old = {w: n for n, w in enumerate(windows) if kinds[n] in _OLD}
    new = {w: n for n, w in enumerate(windows) if kinds[n] in _NEW}
    values = rows.drop_columns(["_change_type", "_commit_version"])
    for piece in _split_entries([n for w, n in old.items() if w not in new]):
        yield from (Change(row, None) for row in _take_rows(values, piece))
    for piece in _split_entries(list(new.items())):
        befores = iter(_take_rows(values, [old[w] for w, _ in piece if w in old]))
        afters = _take_rows(values, [n for _, n in piece])
        for (window, _), after in zip(piece, afters, strict=True):
            before = next(befores) if window in old else None
            if not are_equal(before, after):
                recomputed = window in old and kinds[old[window]] == "delete"
                yield Change(before, after, recomputed)


def rows_as_changes(rows: pa.Table) -> Iterator[Change]:
    """Yield a change for each row of a table, as if its window were new."""
    for batch in rows.to_batches(max_chunksize=thresholds.SINK_BATCH_WINDOWS):
        yield from (Change(None, row) for row in to_display(pa.Table.from_batches([batch])))


def _split_entries(entries: list[_T]) -> Iterator[list[_T]]:
    return (
        entries[n : n + thresholds.SINK_BATCH_WINDOWS]
        for n in range(0, len(entries), thresholds.SINK_BATCH_WINDOWS)
    )


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
    is_instant = pa.types.is_timestamp(column.type)
    return (column.cast(pa.int64()) if is_instant else column).to_pylist()
