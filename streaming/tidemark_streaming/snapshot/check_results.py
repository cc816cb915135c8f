"""Results of expectations, quarantined rows, open failures and faults, read without the engine.

A result describes the windows as they were when the run validated them. A failure is open in three
cases: the failure keeps its window in quarantine; the run published the window with a warning, and
no later run has recomputed the window; or the window has no row, and no later run found the window
valid. Failures of rows that were released or discarded manually are closed. An open failure of
`matches_log()` or `unique_key()` indicates a fault in Tidemark itself.
"""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.instants import format_instant, parse_instant
from tidemark.define.definition import Definition
from tidemark.quality.quarantine import QUARANTINED, Choice
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.commits.conditions import Equals, at_least, text_field
from tidemark.store.key_choice import select_keys
from tidemark.store.rows import to_display
from tidemark.verify.integrity_checks import FAULT_TEXT, INTEGRITY_CHECKS, describe_remedy
from tidemark_streaming.snapshot.snapshot import Snapshot

_Types = Mapping[str, pa.DataType]
"""The types of an asset's keys, by name."""
_EXACT = Context(prec=76)


def keys_of_row(row: Mapping[str, Any], types: _Types) -> str:
    """Return a text that identifies the keys of a row of a table or of a recorded result.

    Equal keys have the same text in both. A result is JSON, which has fewer types than a table and
    represents a TIMESTAMP, a BINARY, NaN, or the DECIMAL 1.50 by another value. The types of the
    key columns therefore determine how each value is written.
    """
    plain = {name: _plain_key(row.get(name), kind) for name, kind in types.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def keys_of_json(keys: str, types: _Types) -> str:
    """Return the text of `keys_of_row` for keys that the engine has written as JSON."""
    return keys_of_row(json.loads(keys, parse_float=str), types)


def _plain_key(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 (any value of a column, and JSON)
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain_key(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain_key(part, kind.value_type) for part in value]
    if pa.types.is_floating(kind):
        number = float(value)
        # Adding 0.0 turns -0.0 into 0.0: the engine groups both as one key.
        return str(float(np.float32(number)) if kind == pa.float32() else number + 0.0)
    if pa.types.is_decimal(kind):
        return str(Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT))
    if pa.types.is_date(kind):
        return _plain_time(value, "D")
    if pa.types.is_timestamp(kind):
        return _plain_time(value, "us")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _plain_time(value: date | str, unit: Literal["D", "us"]) -> str:
    """Return a date or time as text, in one form for Python values and for the text that the engine
    writes. The text may be a date or time that Python's types can't represent."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    # The engine writes a plus sign before a year of five digits.
    text = value.removeprefix("+").removesuffix("Z") if isinstance(value, str) else value
    return str(np.datetime64(text, unit))


Place = tuple[int, str]
"""A window: its start in microseconds, and the text of its keys (`keys_of_row`)."""


def results_since(snapshot: Snapshot, asset: str, commit_number: int = -1) -> list[CheckResult]:
    """Return the results of an asset's commits after `commit_number`, in order."""
    bounds = [*snapshot.current_rows(asset), at_least("commit_number", commit_number + 1)]
    table = snapshot.tables.read(TABLE, bounds=bounds)
    rows = [] if table is None else table.sort_by([("commit_number", "ascending")]).to_pylist()
    return [CheckResult(**row) for row in rows]


def read_quarantine(
    snapshot: Snapshot, definition: Definition, choice: Choice | None = None
) -> list[dict[str, Any]]:
    """Return the rows in quarantine, including discarded ones, sorted by window and keys.

    Keys and aggregates are null if another definition without them made the table.

    Args:
        choice: the windows to return; all if None.
    """
    chosen = choice or Choice()
    chosen.check_keys(definition)
    table = snapshot.tables.read(definition.quarantine_table)
    if table is None:
        return []
    columns = dict.fromkeys(definition.result_columns)
    rows = list[dict[str, Any]]()
    for row in to_display(select_keys(table, chosen.keys, definition.name)):
        start = parse_instant(row["window_start"])
        is_before = chosen.start is not None and start < chosen.start
        is_after = chosen.end is not None and start >= chosen.end
        if not is_before and not is_after:
            rows.append(columns | row)
    keys = ("window_start", *definition.keys)
    return sorted(rows, key=lambda row: [str(row[key]) for key in keys])


def open_failures(
    snapshot: Snapshot, definition: Definition, results: Sequence[CheckResult]
) -> dict[Place, dict[str, str]]:
    """Return the windows with open failures, each with the observed values by expectation.

    Args:
        results: the results since the asset was created, in order.
    """
    types = _key_types(snapshot, definition)
    quarantine = {_window_of(row, types): row for row in read_quarantine(snapshot, definition)}
    failures: dict[Place, dict[str, str]] = {}
    for window, row in quarantine.items():
        if row["quarantine_status"] == QUARANTINED:
            failed = row["failed_expectations"]
            failures[window] = {f["expectation"]: f["observed"] for f in failed}
    reported = _newest_failures(results, types, quarantine)
    if not reported:
        return failures
    published = _read_published(snapshot, definition, {window for window, _ in reported}, types)
    for (window, expectation), (result, observed) in reported.items():
        if window in published:
            row = published[window]
            is_open = row["quality"] == "warned" and row["commit_number"] == result.commit_number
        else:
            is_open = not _was_valid_later(window, result, results, types)
        if is_open:
            failures.setdefault(window, {})[expectation] = observed
    return failures


def _newest_failures(
    results: Sequence[CheckResult], types: _Types, quarantine: Collection[Place]
) -> dict[tuple[Place, str], tuple[CheckResult, str]]:
    """Return the newest failing result of each window and expectation, with the observed value.

    Args:
        results: the results since the asset was created, in order.
        quarantine: the quarantined windows, which are left out.
    """
    newest: dict[tuple[Place, str], tuple[CheckResult, str]] = {}
    for result in results:
        if result.success:
            continue
        for window, observed in _failed_windows(result, types).items():
            if window not in quarantine:
                newest[window, result.expectation] = (result, observed)
    return newest


def _read_published(
    snapshot: Snapshot, definition: Definition, places: Collection[Place], types: _Types
) -> dict[Place, Mapping[str, Any]]:
    """Return the published rows from the first to the last of some windows."""
    keys = snapshot.tables.existing_columns(definition.published_table, definition.keys)
    columns = [*keys, "commit_number", "quality"]
    starts = [start for start, _ in places]
    rows = snapshot.read_windows(definition.published_table, columns, min(starts), max(starts) + 1)
    if rows is None:
        return {}
    published: dict[Place, Mapping[str, Any]] = {}
    for start, row in zip(rows[0], to_display(rows[1]), strict=True):
        published[_window_of(row | {"window_start": start}, types)] = row
    return published


def _key_types(snapshot: Snapshot, definition: Definition) -> _Types:
    """Return the types of an asset's keys; STRING if it has no table yet."""
    tables = (definition.quarantine_table, definition.published_table)
    column_types = dict[str, pa.DataType]()
    for table in tables:
        column_types |= snapshot.tables.column_types(table)
    return {key: column_types.get(key, pa.string()) for key in definition.keys}


def _failed_windows(result: CheckResult, types: _Types) -> dict[Place, str]:
    """Return the windows that a result lists as failing, with the observed values."""
    windows = dict[Place, str]()
    for failure in result.failures:
        start = parse_instant(failure["window_start"])
        windows[start, keys_of_json(failure["keys"], types)] = failure["observed"]
    return windows


def _was_valid_later(
    window: Place, failed: CheckResult, results: Sequence[CheckResult], types: _Types
) -> bool:
    """Return whether a later run validated the window and found it valid.

    A run with an incomplete list of failing windows does not count.
    """
    for result in results:
        is_later = result.commit_number > failed.commit_number
        if not is_later or result.expectation != failed.expectation:
            continue
        first = parse_instant(result.window_from)
        end = parse_instant(result.window_to)
        is_complete = len(result.failures) == result.rows_failed
        if not first <= window[0] < end or not is_complete:
            continue
        if window not in _failed_windows(result, types):
            return True
    return False


def _window_of(row: Mapping[str, Any], types: _Types) -> Place:
    start = row["window_start"]
    where = start if isinstance(start, int) else parse_instant(start)
    return where, keys_of_row(row, types)


@dataclass(frozen=True)
class IntegrityFault:
    """Windows of one asset that currently fail an integrity check.

    Args:
        expectations: the expectations that the windows fail.
        windows: the number of windows.
        first: the start of the earliest window, in microseconds.
        since: the time of the first run that reported one of the windows.
        remedy: an instruction that resolves the fault.
    """

    asset: str
    expectations: list[str]
    windows: int
    first: int
    since: datetime
    remedy: str

    @property
    def cause(self) -> str:
        """The failing windows, and since when they fail."""
        subject = "1 window fails" if self.windows == 1 else f"{self.windows:,} windows fail"
        return (
            f"{self.asset}: {subject} {' and '.join(self.expectations)} since "
            f"{self.since:%Y-%m-%d %H:%M} UTC, the first at {format_instant(self.first)}; this is "
            f"{FAULT_TEXT}."
        )


def find_integrity_fault(snapshot: Snapshot, definition: Definition) -> IntegrityFault | None:
    """Return the open integrity failures of an asset; None if there are none.

    If all results are successes, only one read of the results is necessary.
    """
    is_integrity_check = text_field("expectation").isin(list(INTEGRITY_CHECKS))
    asset = [Equals("asset", definition.name)]
    is_failure = is_integrity_check & ~ds.field("success")
    failed = snapshot.tables.read(TABLE, ["asset"], is_failure, asset)
    if failed is None or not failed.num_rows:
        return None
    stored = snapshot.tables.read(TABLE, None, is_integrity_check, asset)
    last = snapshot.last_run(definition.name)
    if stored is None or last is None:
        return None
    results = list[CheckResult]()
    for row in stored.to_pylist():
        if row["table_id"] == last["table_id"]:
            results.append(CheckResult(**row))
    results.sort(key=lambda result: result.commit_number)
    failing = open_failures(snapshot, definition, results)
    types = _key_types(snapshot, definition)
    expectations = set[str]()
    reporting_runs = list[datetime]()
    window_starts = dict[Place, int]()
    for result in results:
        reports_fault = False
        for window in _failed_windows(result, types):
            names = INTEGRITY_CHECKS.intersection(failing.get(window, ()))
            if names:
                expectations |= names
                window_starts[window] = window[0]
                reports_fault = True
        if reports_fault:
            reporting_runs.append(result.at)
    if not window_starts:
        return None
    return IntegrityFault(
        asset=definition.name,
        expectations=sorted(expectations),
        windows=len(window_starts),
        first=min(window_starts.values()),
        since=min(reporting_runs),
        remedy=describe_remedy(definition),
    )
