"""Results of expectations, quarantined rows, and open failures, read without the engine.

A result describes the windows as they were at its run. A failure is open in three cases: its window
is in quarantine because of it; the run published the window with a warning, and no later run has
recomputed it; or the window has no row, and no later run found it valid. Failures of rows that were
released or discarded manually are closed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality.quarantine import QUARANTINED, Choice
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.commits.conditions import at_least
from tidemark.store.key_choice import choose
from tidemark.store.rows import to_display
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.snapshot.window_keys import Types, keys_of_json, keys_of_row

Place = tuple[int, str]
"""A window: its start, and the text of its keys (`window_keys`)."""


def results_since(snapshot: Snapshot, asset: str, after: int = -1) -> list[CheckResult]:
    """Return the results of an asset's commits after the number `after`, in order."""
    bounds = [*snapshot.present(asset), at_least("commit_number", after + 1)]
    table = snapshot.tables.read(TABLE, bounds=bounds)
    rows = [] if table is None else table.sort_by([("commit_number", "ascending")]).to_pylist()
    return [CheckResult(**row) for row in rows]


def read_quarantine(
    snapshot: Snapshot, transform: Definition, choice: Choice | None = None
) -> list[dict[str, Any]]:
    """Return the rows in quarantine, by window and keys.

    Raises:
        DefinitionError: the asset does not have one of the keys, or a value is not of its type.
    """
    chosen = choice or Choice()
    chosen.check(transform)
    table = snapshot.tables.read(transform.quarantine_table)
    rows: list[dict[str, Any]] = (
        [] if table is None else to_display(choose(table, chosen.keys, transform.name))
    )

    def matches(row: Mapping[str, Any]) -> bool:
        start = instant(row["window_start"])
        return (chosen.start is None or start >= chosen.start) and (
            chosen.end is None or start < chosen.end
        )

    keys = ("window_start", *transform.keys)
    return sorted(filter(matches, rows), key=lambda r: [str(r[k]) for k in keys])


def open_failures(
    snapshot: Snapshot, transform: Definition, results: Sequence[CheckResult]
) -> dict[Place, dict[str, str]]:
    """Return the windows with open failures, each with the observed values by expectation.

    Args:
        results: the results since the asset was created, in order.
    """
    types = key_types(snapshot, transform)
    quarantine = {_place(row, types): row for row in read_quarantine(snapshot, transform)}
    found: dict[Place, dict[str, str]] = {
        place: {failed["expectation"]: failed["observed"] for failed in row["failed_expectations"]}
        for place, row in quarantine.items()
        if row["quarantine_status"] == QUARANTINED
    }
    newest = {
        (place, r.expectation): (r, observed)
        for r in results
        if not r.success
        for place, observed in failed_windows(r, types).items()
        if place not in quarantine
    }
    if not newest:
        return found
    starts = [place[0] for place, _ in newest]
    columns = [*transform.keys, "commit_number", "quality"]
    there = snapshot.between(transform.table, columns, min(starts), max(starts) + 1)
    published: dict[Place, Mapping[str, Any]] = {}
    if there is not None:
        for start, row in zip(there[0], there[1].to_pylist(), strict=True):
            published[_place(row | {"window_start": start}, types)] = row
    for (place, expectation), (result, observed) in newest.items():
        if place in published:
            row = published[place]
            is_open = row["quality"] == "warned" and row["commit_number"] == result.commit_number
        else:
            is_open = not _was_valid_later(place, result, results, types)
        if is_open:
            found.setdefault(place, {})[expectation] = observed
    return found


def key_types(snapshot: Snapshot, transform: Definition) -> Types:
    """Return the types of an asset's keys; STRING if it has no table yet."""
    tables = (transform.quarantine_table, transform.table)
    known = {name: kind for t in tables for name, kind in snapshot.tables.types(t).items()}
    return {key: known.get(key, pa.string()) for key in transform.keys}


def failed_windows(result: CheckResult, types: Types) -> dict[Place, str]:
    """Return the windows that a result lists as failing, with the observed values."""
    return {
        (instant(f["window_start"]), keys_of_json(f["keys"], types)): f["observed"]
        for f in result.failures
    }


def _was_valid_later(
    place: Place, failed: CheckResult, results: Sequence[CheckResult], types: Types
) -> bool:
    """Return whether a later run validated the window and did not list it as failing."""
    return any(
        r.commit_number > failed.commit_number
        and r.expectation == failed.expectation
        and instant(r.window_from) <= place[0] < instant(r.window_to)
        and len(r.failures) == r.rows_failed
        and place not in failed_windows(r, types)
        for r in results
    )


def _place(row: Mapping[str, Any], types: Types) -> Place:
    start = row["window_start"]
    where = start if isinstance(start, int) else instant(start)
    return where, keys_of_row(row, types)
