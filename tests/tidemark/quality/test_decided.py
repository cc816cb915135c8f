"""Tests that a retry publishes the decisions of the first attempt, even if expectations change.

A run is killed at each fail point, its expectations change, and the next run publishes the commit.
The next runs work on copies of the tables, so that each run is killed once.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from helpers.data.support import PER_MINUTE, READINGS, ingest, some_arrivals
from tidemark import expect as q
from tidemark.define.transform import WindowedTransform
from tidemark.quality.results import TABLE
from tidemark.run import commit
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.warehouse import Warehouse

POINTS = commit.STEPS[1:]
"""The fail points of a run that has stored its commit but not finished publishing it."""

HALF = (q.between("n", max_value=8), q.between("n", max_value=7, level="warning"))
EXPECTATIONS = {
    "half": HALF,
    "all pass": (q.between("n", max_value=1000),),
    "all fail": (q.between("n", max_value=0),),
    "none": (),
}
ASSETS = {name: replace(PER_MINUTE, expectations=some) for name, some in EXPECTATIONS.items()}
CASES = [
    pytest.param(point, before, after, replacing, marks=[] if is_usual else pytest.mark.nightly)
    for (n, point), (m, before), (k, after), replacing in product(
        enumerate(POINTS), enumerate(EXPECTATIONS), enumerate(EXPECTATIONS), (False, True)
    )
    # One for each fail point; at night, all combinations.
    for is_usual in [m == n % 4 and k == (n + 1 + n // 4) % 4 and replacing == (n % 2 == 0)]
]


class Killed(BaseException):
    """The simulated death of the process."""


class Windows(NamedTuple):
    """Published windows with their quality, quarantined windows, and stored results."""

    published: Mapping[tuple[object, ...], str | None]
    quarantined: frozenset[tuple[object, ...]]
    results: frozenset[tuple[str, bool, int]]


def windows(warehouse: Warehouse, asset: WindowedTransform) -> Windows:
    def rows(table: str) -> list[dict[str, object]]:
        return warehouse.load_rows(table).to_pylist() if warehouse.has_table(table) else []

    def place(row: dict[str, object]) -> tuple[object, ...]:
        return tuple(row[column] for column in asset.by_window)

    results = [r for r in rows(TABLE) if r["asset"] == asset.name]
    return Windows(
        {place(r): str(r["quality"]) for r in rows(asset.published_table)},
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


def copied(warehouse: Warehouse) -> Warehouse:
    """Return a copy of a warehouse, in another database."""
    tables, database = Path(warehouse.path_of("")), f"test_{uuid4().hex[:12]}"
    shutil.copytree(tables, tables.with_name(database))
    return Warehouse(warehouse.spark, *warehouse.place._replace(database=database))


class Runs:
    """Runs of the asset on copies of one event log, each made once."""

    def __init__(self, logged: Warehouse) -> None:
        self._logged = logged
        self.killed, self.whole = cache(self._killed), cache(self._whole)

    def _killed(self, point: str, before: str, *, replacing: bool) -> Warehouse:
        """Return a warehouse in which a run was killed at a fail point."""
        warehouse = copied(self._logged)
        with pytest.MonkeyPatch.context() as patch:
            dies_at(point, patch)
            with pytest.raises(Killed):
                runs(warehouse, ASSETS[before], replacing=replacing)
        return warehouse

    def _whole(self, before: str, *, replacing: bool) -> Windows:
        """Return the windows of a run that is not killed."""
        warehouse = copied(self._logged)
        runs(warehouse, ASSETS[before], replacing=replacing)
        return windows(warehouse, ASSETS[before])

    def check(self, point: str, before: str, after: str, *, replacing: bool = False) -> None:
        """Compare a run that completes the killed one with a run that is not killed."""
        warehouse, changed = copied(self.killed(point, before, replacing=replacing)), ASSETS[after]
        incremental(warehouse, changed)
        found, whole = windows(warehouse, changed), self.whole(before, replacing=replacing)
        everything = whole.published.keys() | whole.quarantined
        assert not found.published.keys() & found.quarantined
        assert found.published.keys() | found.quarantined == everything
        ended = warehouse.load_rows(ledger.TABLE).to_pylist()
        assert [r["quarantined"] for r in ended] == [len(found.quarantined)]
        # Without expectations, no decision is stored before the published table is written.
        recorded = "ledger" if before == "none" else "late"
        if POINTS.index(point) >= POINTS.index(recorded):
            assert found == whole


@pytest.fixture(scope="module")
def made(shared: Warehouse) -> Runs:
    ingest(shared, READINGS, some_arrivals(count=3, size=30))
    return Runs(shared)


@pytest.mark.parametrize("point", ["quarantine", "published"])
def test_a_retry_keeps_the_decision_of_the_first_attempt(made: Runs, point: str) -> None:
    made.check(point, "half", "all fail")


def test_a_published_window_is_not_quarantined_by_a_later_expectation(made: Runs) -> None:
    made.check("ledger", "none", "all fail")


@pytest.mark.slow
@pytest.mark.parametrize(("point", "before", "after", "replacing"), CASES)
def test_a_retry_keeps_decisions_at_every_fail_point(
    made: Runs, point: str, before: str, after: str, replacing: bool
) -> None:
    made.check(point, before, after, replacing=replacing)
