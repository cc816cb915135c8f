"""Faults of Tidemark itself that stand: windows that fail `complete()` or `unique()` as they are.

A result of the past says only what was found then. A window is at fault now where it is withheld
for it, was published with a warning for it and has not been computed since, or has no row at all
and no later run has found it in order. What a person released or discarded is decided.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.dataset as ds

from tidemark.base.instants import instant, iso
from tidemark.define.definition import Definition
from tidemark.quality.quarantine import HELD
from tidemark.quality.results import TABLE, CheckResult
from tidemark.verify.own_faults import OWN, VERDICT, remedy
from tidemark_streaming.glance import Glance
from tidemark_streaming.judged import withheld

_Place = tuple[int, str]
"""A window: its start and its keys as JSON."""


@dataclass(frozen=True)
class StandingFault:
    """Windows of one asset that fail such an expectation as they are.

    Args:
        expectations: those that they fail.
        windows: how many.
        first: the start of the first of them, microseconds.
        since: when a run found the first of them.
        remedy: what to do, in a sentence.
    """

    asset: str
    expectations: list[str]
    windows: int
    first: int
    since: datetime
    remedy: str

    def sentence(self) -> str:
        """All of it in a sentence."""
        some = "1 window fails" if self.windows == 1 else f"{self.windows:,} windows fail"
        return (
            f"{self.asset}: {some} {' and '.join(self.expectations)} since "
            f"{self.since:%Y-%m-%d %H:%M} UTC, the first at {iso(self.first)}; this is {VERDICT}: "
            f"{self.remedy}"
        )


def standing_fault(glance: Glance, transform: Definition) -> StandingFault | None:
    """What stands of an asset; None where nothing does, which takes one look at the results."""
    own = (ds.field("asset") == transform.name) & ds.field("expectation").isin(list(OWN))
    failed = glance.select(TABLE, ["asset"], own & ~ds.field("success"))
    if failed is None or not failed.num_rows:
        return None
    found = glance.select(TABLE, None, own)
    last = glance.last_run(transform.name)
    rows = [] if found is None or last is None else found.to_pylist()
    life = "" if last is None else last["life"]
    results = sorted((CheckResult(**r) for r in rows if r["life"] == life), key=lambda r: r.seq)
    at_fault = _at_fault(glance, transform, results)
    if not at_fault:
        return None
    named = [r for r in results if not _named(r).isdisjoint(at_fault)]
    return StandingFault(
        asset=transform.name,
        expectations=sorted({e for es in at_fault.values() for e in es}),
        windows=len(at_fault),
        first=min(start for start, _ in at_fault),
        since=min(r.at for r in named),
        remedy=remedy(transform),
    )


def _at_fault(
    glance: Glance, transform: Definition, results: Sequence[CheckResult]
) -> dict[_Place, set[str]]:
    newest = {
        (place, r.expectation): r for r in results if not r.success for place in sorted(_named(r))
    }
    if not newest:
        return {}
    quarantine = {_place(transform, row): row for row in withheld(glance, transform)}
    starts = [place[0] for place, _ in newest]
    columns = [*transform.keys, "seq", "quality"]
    there = glance.between(transform.table, columns, min(starts), max(starts) + 1)
    published: dict[_Place, Mapping[str, Any]] = {}
    if there is not None:
        for start, row in zip(there[0], there[1].to_pylist(), strict=True):
            published[_place(transform, row | {"window_start": start})] = row
    found: dict[_Place, set[str]] = {}
    for (place, expectation), result in newest.items():
        if place in quarantine:
            row = quarantine[place]
            names = {f["expectation"] for f in row["failed"]}
            stands = row["status"] == HELD and expectation in names
        elif place in published:
            row = published[place]
            stands = row["quality"] == "warned" and row["seq"] == result.seq
        else:
            stands = not _looked_at(place, expectation, result, results)
        if stands:
            found.setdefault(place, set()).add(expectation)
    return found


def _looked_at(
    place: _Place, expectation: str, failed: CheckResult, results: Sequence[CheckResult]
) -> bool:
    """Whether a later run judged the windows around one without naming it."""
    return any(
        r.seq > failed.seq
        and r.expectation == expectation
        and instant(r.window_from) <= place[0] < instant(r.window_to)
        and len(r.failures) == r.rows_failed
        and place not in _named(r)
        for r in results
    )


def _named(result: CheckResult) -> set[_Place]:
    return {(instant(f["window_start"]), _plain(json.loads(f["keys"]))) for f in result.failures}


def _place(transform: Definition, row: Mapping[str, Any]) -> _Place:
    start = row["window_start"]
    where = start if isinstance(start, int) else instant(start)
    return where, _plain({key: row[key] for key in transform.keys})


def _plain(keys: Mapping[str, Any]) -> str:
    """Keys as JSON, their values as text, whoever wrote them."""
    return json.dumps({k: None if v is None else str(v) for k, v in keys.items()}, sort_keys=True)
