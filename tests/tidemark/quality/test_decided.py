"""Tests that a retry publishes the decisions of the first attempt, even if expectations change.

A run is killed at each fail point, its expectations change, and the next run publishes the commit.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import pytest

from helpers.data.support import PER_MINUTE, READINGS, ingest, some_arrivals
from tidemark import quality as q
from tidemark.define.transform import WindowedTransform
from tidemark.quality.results import TABLE
from tidemark.run import commit
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.warehouse import Warehouse

REGISTERED = False
POINTS = commit.STEPS[1:]
"""The fail points of a run that has stored its commit but not finished publishing it."""

HALF = (q.between("n", most=8), q.between("n", most=7, level="warning"))
EXPECTATIONS = {
    "half": HALF,
    "all pass": (q.between("n", most=1000),),
    "all fail": (q.between("n", most=0),),
    "none": (),
}


class Killed(BaseException):
    """The simulated death of the process."""


class Windows(NamedTuple):
    """Published windows with their quality, quarantined windows, and stored results."""

    published: Mapping[tuple[object, ...], str | None]
    quarantined: frozenset[tuple[object, ...]]
    results: frozenset[tuple[str, bool, int]]


def windows(warehouse: Warehouse, asset: WindowedTransform) -> Windows:
    def rows(table: str) -> list[dict[str, object]]:
        return warehouse.take(table).to_pylist() if warehouse.exists(table) else []

    def place(row: dict[str, object]) -> tuple[object, ...]:
        return tuple(row[column] for column in asset.by_window)

    results = [r for r in rows(TABLE) if r["asset"] == asset.name]
    return Windows(
        {place(r): str(r["quality"]) for r in rows(asset.table)},
        frozenset(place(r) for r in rows(asset.quarantine_table)),
        frozenset(
            (str(r["expectation"]), bool(r["success"]), int(str(r["rows_failed"]))) for r in results
        ),
    )


def runs(warehouse: Warehouse, asset: WindowedTransform, *, replacing: bool) -> None:
    if replacing:
        backfill(warehouse, asset)
    else:
        incremental(warehouse, asset)


def dies_at(point: str, patch: pytest.MonkeyPatch) -> None:
    def reach(reached: str) -> None:
        if reached == point:
            raise Killed

    patch.setattr(commit, "pass_fail_point", reach)


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    ingest(shared, READINGS, some_arrivals(count=3, size=30))
    return shared


_NUMBERS = count()
_DECIDED: dict[tuple[str, bool], Windows] = {}


def decided(warehouse: Warehouse, before: str, *, replacing: bool) -> Windows:
    """Return the windows of a run that is not killed."""
    known = _DECIDED.get((before, replacing))
    if known is None:
        name = f"whole_{before.replace(' ', '_')}_{replacing:d}"
        asset = replace(PER_MINUTE, name=name, expectations=EXPECTATIONS[before])
        runs(warehouse, asset, replacing=replacing)
        known = _DECIDED[before, replacing] = windows(warehouse, asset)
    return known


def check(
    warehouse: Warehouse, point: str, before: str, after: str, *, replacing: bool = False
) -> None:
    name = f"{point}_{before}_{after}_{next(_NUMBERS)}".replace(" ", "_")
    asset = replace(PER_MINUTE, name=name, expectations=EXPECTATIONS[before])
    with pytest.MonkeyPatch.context() as patch:
        dies_at(point, patch)
        with pytest.raises(Killed):
            runs(warehouse, asset, replacing=replacing)
    changed = replace(asset, expectations=EXPECTATIONS[after])
    incremental(warehouse, changed)
    found, whole = windows(warehouse, changed), decided(warehouse, before, replacing=replacing)
    everything = whole.published.keys() | whole.quarantined
    assert not found.published.keys() & found.quarantined
    assert found.published.keys() | found.quarantined == everything
    ended = [r for r in warehouse.take(ledger.TABLE).to_pylist() if r["asset"] == name]
    assert [r["quarantined"] for r in ended] == [len(found.quarantined)]
    # Without expectations, no decision is stored before the published table is written.
    recorded = "ledger" if before == "none" else "late"
    if POINTS.index(point) >= POINTS.index(recorded):
        assert found == whole


@pytest.mark.parametrize("point", ["quarantine", "published"])
def test_a_retry_keeps_the_decision_of_the_first_attempt(logged: Warehouse, point: str) -> None:
    check(logged, point, "half", "all fail")


def test_a_published_window_is_not_quarantined_by_a_later_expectation(
    logged: Warehouse,
) -> None:
    check(logged, "ledger", "none", "all fail")


@pytest.mark.slow
@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("after", EXPECTATIONS)
@pytest.mark.parametrize("before", EXPECTATIONS)
@pytest.mark.parametrize("point", POINTS)
def test_a_retry_keeps_decisions_at_every_fail_point(
    logged: Warehouse, point: str, before: str, after: str, replacing: bool
) -> None:
    check(logged, point, before, after, replacing=replacing)
