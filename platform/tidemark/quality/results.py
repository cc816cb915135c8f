"""Store every result of every expectation as a row of the table `checks`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark.define import tables
from tidemark.define.expectations.expectation import Expectation
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges
from tidemark.store.committers.values import Merge
from tidemark.store.rows import INSTANT, to_micros

TABLE = tables.CHECKS
MAX_FAILURES = 1000
"""Maximum number of failures that a stored result lists; `rows_failed` counts all failures."""
_OBSERVED = 5

ERASED_TEXT = "deleted, because events of this time were erased"
"""The text that replaces the observed values of a result after an erasure."""

_FAILURE = {"window_start": INSTANT, "keys": pa.string(), "observed": pa.string()}
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("asset", "side_of", "table_id", "expectation", "level"), pa.string()),
        "success": pa.bool_(),
        **dict.fromkeys(("window_from", "window_to"), INSTANT),
        **dict.fromkeys(("rows_validated", "rows_failed"), pa.int64()),
        **dict.fromkeys(("observed", "expected"), pa.string()),
        "failures": pa.list_(pa.struct(list(_FAILURE.items()))),
        **dict.fromkeys(("run", "mode"), pa.string()),
        **dict.fromkeys(("through_arrival", "commit_number"), pa.int64()),
        "at": INSTANT,
    }
)


@dataclass(frozen=True, order=True)
class Failure:
    """A row that fails an expectation, or a window and key that lack an expected row.

    Args:
        window_start: the start of the window, in microseconds.
        keys: the keys as JSON.
        observed: the observed value as text.
        row: the row's `ROW` number; None if the row is missing, so that none can be quarantined.
    """

    window_start: int
    keys: str
    observed: str
    row: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Result:
    """The outcome of one expectation for the rows of one run, with the rows that fail.

    Args:
        count: the number of rows in the run.
        validated: the number of rows that the expectation could validate.
        span: the first window start and the last window end of the rows, in microseconds.
        failures: the rows that fail, and the windows and keys that lack an expected row.
        observed: the value observed for the rows as a whole, if there is one.
    """

    expectation: Expectation
    success: bool
    count: int
    validated: int
    span: tuple[int, int]
    failures: Sequence[Failure] = field(default_factory=list[Failure])
    observed: str | None = None

    @property
    def fails_as_whole(self) -> bool:
        """True if the expectation fails for the rows as a whole, and not for single rows."""
        return not self.success and not self.failures

    def describe_outcome(self) -> str:
        """Return the observed value for the rows as a whole, or a summary of the failures."""
        if self.observed is not None:
            return self.observed
        if not self.failures:
            return f"{format_count(self.validated, 'row')} as expected"
        listed = [f"{f.observed} ({_format_place(f)})" for f in self.failures[:_OBSERVED]]
        unlisted_count = len(self.failures) - len(listed)
        if unlisted_count:
            listed.append(f"and {unlisted_count:,} more")
        return "; ".join(listed)


@dataclass(frozen=True)
class CheckResult:
    """One result of one expectation: a row of the table `checks`.

    Args:
        side_of: the asset that is rebuilt or replayed, if the result is from the separate tables of
            a rebuild or a replay; otherwise None.
        table_id: the identity of the asset's tables, as in the ledger.
        window_from, window_to: the first window start and the last window end that were validated.
        observed: the observed value, or a summary of the failures.
        failures: at most a thousand failures, each with `window_start`, `keys` (JSON), `observed`.
        run, mode, through_arrival, commit_number: the run, as in the ledger.
        at: the time at which the result was recorded.
    """

    asset: str
    side_of: str | None
    table_id: str
    expectation: str
    level: str
    success: bool
    window_from: datetime
    window_to: datetime
    rows_validated: int
    rows_failed: int
    observed: str
    expected: str
    failures: list[Mapping[str, Any]]
    run: str
    mode: str
    through_arrival: int
    commit_number: int
    at: datetime


def append_results(asset: Asset, commit_info: CommitInfo, results: Sequence[Result]) -> None:
    """Record the results of a commit, at most once. Do nothing without results."""
    if not results:
        return
    rows: list[dict[str, Any]] = []
    recorded_at = time.time_ns() // 1000
    for result in results:
        row = {
            "asset": asset.transform.name,
            "side_of": asset.transform.side_of,
            "table_id": asset.table_id,
            "run": commit_info.run,
            "mode": commit_info.mode,
            "through_arrival": commit_info.furthest_position.arrival,
            "commit_number": commit_info.commit_number,
            "at": recorded_at,
        }
        rows.append(row | _to_columns(result))
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    asset.warehouse.ensure_table(TABLE, table, "Every result of every expectation")
    asset.warehouse.append_rows(
        table, TABLE, asset.commit_app, commit_info.commit_number, epoch=asset.start_epoch
    )


def _to_columns(result: Result) -> dict[str, Any]:
    """Return the columns of the table that depend on the result alone."""
    window_from, window_to = result.span
    rows_failed = len(result.failures)
    if result.fails_as_whole:
        rows_failed = result.validated
    failures: list[dict[str, Any]] = []
    for failure in _select_listed(result.failures):
        failures.append(
            {
                "window_start": failure.window_start,
                "keys": failure.keys,
                "observed": failure.observed,
            }
        )
    return {
        "expectation": result.expectation.name,
        "level": result.expectation.level,
        "success": result.success,
        "window_from": window_from,
        "window_to": window_to,
        "rows_validated": result.validated,
        "rows_failed": rows_failed,
        "observed": result.describe_outcome(),
        "expected": result.expectation.expected,
        "failures": failures,
    }


def _select_listed(failures: Sequence[Failure]) -> list[Failure]:
    """Return the failures that a stored result lists, at most `MAX_FAILURES`.

    The first failure of each window takes precedence over further failures of that window. The list
    therefore shows as many of the windows with failures as possible.
    """
    listed = list[Failure]()
    further = list[Failure]()
    seen_windows = set[int]()
    for failure in failures:
        if failure.window_start in seen_windows:
            further.append(failure)
        else:
            listed.append(failure)
            seen_windows.add(failure.window_start)
    listed += further
    return sorted(listed[:MAX_FAILURES])


def delete_observations(asset: Asset, ranges: Ranges, validating_commit: int) -> int:
    """Delete the observed values from earlier results about windows whose events were erased.

    Return the number of results that changed. A result that covers any of these windows loses its
    observed value and its failures, but keeps its counts. This includes results of the separate
    tables of a rebuild or a replay, even if those tables have since been deleted.

    Args:
        ranges: the ranges of the window starts; without any range, all windows are meant.
        validating_commit: the commit that validated the windows again. Its results do not change,
            nor do those of later commits.
    """
    warehouse = asset.warehouse
    if not warehouse.has_table(TABLE):
        return 0
    rows = warehouse.load_rows(TABLE)
    owners = zip(rows["asset"].to_pylist(), rows["side_of"].to_pylist(), strict=True)
    is_of_asset = [asset.transform.name in names for names in owners]
    rows = rows.filter(pa.array(is_of_asset, pa.bool_()))
    starts = to_micros(rows["window_from"])
    ends = to_micros(rows["window_to"])
    facts = rows.select(["table_id", "commit_number", "observed"]).to_pylist()
    mask: list[bool] = []
    for row, start, end in zip(facts, starts, ends, strict=True):
        is_current_table = row["table_id"] == asset.table_id
        is_new = is_current_table and row["commit_number"] >= validating_commit
        is_erased = row["observed"] == ERASED_TEXT
        covers_window = _overlaps_ranges(start, end, ranges)
        mask.append(covers_window and not is_new and not is_erased)
    chosen = rows.filter(pa.array(mask, pa.bool_()))
    if not chosen.num_rows:
        return 0
    no_failures = pa.array([[]] * chosen.num_rows, _SCHEMA.field("failures").type)
    chosen = chosen.set_column(chosen.column_names.index("failures"), "failures", no_failures)
    clear_values = Merge(
        on=("asset", "table_id", "expectation", "commit_number"),
        insert=None,
        only={"failures": "s.failures", "observed": f"'{ERASED_TEXT}'"},
    )
    warehouse.merge_rows(chosen, TABLE, clear_values)
    return chosen.num_rows


def _overlaps_ranges(start: int, end: int, ranges: Ranges) -> bool:
    """Return whether [start, end) overlaps one of the ranges; True for `ALL_WINDOWS`."""
    if ranges == ALL_WINDOWS:
        return True
    return any(start < range_end and range_start < end for range_start, range_end in ranges)


def _format_place(failure: Failure) -> str:
    parts = [f"{format_instant(failure.window_start)}"]
    parts += [str(value) for value in json.loads(failure.keys).values()]
    return ", ".join(parts)
