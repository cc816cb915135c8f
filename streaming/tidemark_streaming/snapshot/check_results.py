"""What the gates found, read without the engine: results as they come, what is withheld, and which
failures stand.

A result of the past only says what was found then. A failure stands now if its window is withheld
for it, was published with a warning by that run and has not been computed since, or has no row at
all and no later run has found it in order. What a person released or discarded is decided.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality.quarantine import HELD, Choice
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.conditions import at_least
from tidemark.store.rows import to_display
from tidemark_streaming.snapshot.snapshot import Snapshot

Place = tuple[int, str]
"""A window: its start and its keys as JSON."""


def results_since(snapshot: Snapshot, asset: str, after: int = -1) -> list[CheckResult]:
    """The results of the commits after the number `after` of an asset's present life, in order."""
    bounds = [*snapshot.present(asset), at_least("seq", after + 1)]
    table = snapshot.tables.read(TABLE, bounds=bounds)
    rows = [] if table is None else table.sort_by([("seq", "ascending")]).to_pylist()
    return [CheckResult(**row) for row in rows]


def withheld(
    snapshot: Snapshot, transform: Definition, choice: Choice | None = None
) -> list[dict[str, Any]]:
    """The rows in quarantine, by window and keys.

    Raises:
        DefinitionError: a key that the asset has not.
    """
    chosen = choice or Choice()
    chosen.check(transform)
    table = snapshot.tables.read(transform.quarantine_table)
    rows: list[dict[str, Any]] = [] if table is None else to_display(table)

    def wanted(row: Mapping[str, Any]) -> bool:
        start = instant(row["window_start"])
        return (
            (chosen.start is None or start >= chosen.start)
            and (chosen.end is None or start < chosen.end)
            and all(str(row[k]) == v for k, v in chosen.keys.items())
        )

    keys = ("window_start", *transform.keys)
    return sorted(filter(wanted, rows), key=lambda r: [str(r[k]) for k in keys])


def standing(
    snapshot: Snapshot, transform: Definition, results: Sequence[CheckResult]
) -> dict[Place, dict[str, str]]:
    """Return the windows that fail an expectation as they are now: by expectation, the value that
    was observed.

    Args:
        results: of the asset's present life, in order; quarantine is read besides.
    """
    quarantine = {_place(transform, row): row for row in withheld(snapshot, transform)}
    found: dict[Place, dict[str, str]] = {
        place: {failed["expectation"]: failed["observed"] for failed in row["failed"]}
        for place, row in quarantine.items()
        if row["status"] == HELD
    }
    newest = {
        (place, r.expectation): (r, observed)
        for r in results
        if not r.success
        for place, observed in named(r).items()
        if place not in quarantine
    }
    if not newest:
        return found
    starts = [place[0] for place, _ in newest]
    columns = [*transform.keys, "seq", "quality"]
    there = snapshot.between(transform.table, columns, min(starts), max(starts) + 1)
    published: dict[Place, Mapping[str, Any]] = {}
    if there is not None:
        for start, row in zip(there[0], there[1].to_pylist(), strict=True):
            published[_place(transform, row | {"window_start": start})] = row
    for (place, expectation), (result, observed) in newest.items():
        if place in published:
            row = published[place]
            stands = row["quality"] == "warned" and row["seq"] == result.seq
        else:
            stands = not _judged_later(place, result, results)
        if stands:
            found.setdefault(place, {})[expectation] = observed
    return found


def named(result: CheckResult) -> dict[Place, str]:
    """Return the windows that a result lists as failing, with what was observed."""
    return {
        (instant(f["window_start"]), _plain(json.loads(f["keys"]))): f["observed"]
        for f in result.failures
    }


def _judged_later(place: Place, failed: CheckResult, results: Sequence[CheckResult]) -> bool:
    """Whether a later run judged the windows around one without naming it."""
    return any(
        r.seq > failed.seq
        and r.expectation == failed.expectation
        and instant(r.window_from) <= place[0] < instant(r.window_to)
        and len(r.failures) == r.rows_failed
        and place not in named(r)
        for r in results
    )


def _place(transform: Definition, row: Mapping[str, Any]) -> Place:
    start = row["window_start"]
    where = start if isinstance(start, int) else instant(start)
    return where, _plain({key: row[key] for key in transform.keys})


def _plain(keys: Mapping[str, Any]) -> str:
    """Keys as JSON, their values as text, whoever wrote them."""
    text = {k: None if v is None else str(v) for k, v in keys.items()}
    return json.dumps(text, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
