"""Tests that `tidemark tap` shows the rows of the run itself."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest

from helpers.data.runs import run_all
from helpers.data.support import PER_MINUTE, READINGS, minutes, renamed, some_arrivals
from helpers.suite.nightly import NIGHTLY
from tidemark import expect as q
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define import classification
from tidemark.define.helper_columns import VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.firings import Count
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Session
from tidemark.run.runner import backfill
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.tap import find_step, list_steps, tap_step

ARRIVALS = some_arrivals()
ALL = 10_000
GATED = replace(PER_MINUTE, expectations=(q.between("n", max_value=12),), accumulation="discarding")


def tapped(
    warehouse: Warehouse, asset: WindowedTransform, step: str, commit_number: int, limit: int = ALL
) -> list[dict[str, Any]]:
    found = tap_step(warehouse, asset, find_step(asset, step), commit_number, limit)
    assert found.more == (limit < ALL)
    return list(found.rows)


def rows(found: Iterable[Mapping[str, Any]], without: Iterable[str] = ()) -> Counter[str]:
    """Count rows in any order, with doubles rounded because the order of addition differs."""
    return Counter(
        repr([(k, f"{v:.9g}" if isinstance(v, float) else v) for k, v in sorted(row.items())])
        for row in ({k: v for k, v in r.items() if k not in without} for r in found)
    )


def stored(
    warehouse: Warehouse, asset: WindowedTransform, commit_number: int
) -> list[dict[str, Any]]:
    """Return the partials that the state has stored."""
    found = State(warehouse, asset).read_partials_of_commit(commit_number).toArrow()
    return [{**r, VERDICT: classification.VERDICTS[r[VERDICT]]} for r in found.to_pylist()]


def check(warehouse: Warehouse, asset: WindowedTransform, facts: RunFacts) -> None:
    """Compare the steps of a run with the events that it counted and wrote."""
    seen = Counter(r[VERDICT] for r in tapped(warehouse, asset, "classified", facts.commit_number))
    assert seen == Counter(
        {w: n for w in classification.VERDICTS.values() if (n := getattr(facts, w))}
    )
    late = tapped(warehouse, asset, "late", facts.commit_number)
    assert len(late) == facts.too_late + facts.no_event_time
    partials = tapped(warehouse, asset, "partials", facts.commit_number)
    assert rows(partials) == rows(stored(warehouse, asset, facts.commit_number), ["commit_number"])


@pytest.mark.parametrize(
    "asset",
    [
        renamed(GATED, "tapped"),
        renamed(replace(PER_MINUTE, trigger=Trigger(early=Count(3))), "tapped_by_count"),
        pytest.param(
            renamed(replace(PER_MINUTE, window=Session("30 seconds")), "tapped_sessions"),
            marks=NIGHTLY,
        ),
    ],
    ids=lambda asset: asset.name,
)
def test_each_step_shows_the_rows_that_passed_it(
    logged: Warehouse, asset: WindowedTransform
) -> None:
    made = run_all(logged, asset, 3)
    for facts in made:
        check(logged, asset, facts)
        first, last = facts.from_arrival + 1, facts.through_arrival
        read = tapped(logged, asset, "read", facts.commit_number)
        brought = [e for events in [*ARRIVALS, []][first : last + 1] for e in events]
        assert [r["value"] for r in read] == [e.value for e in brought]
        assert tapped(logged, asset, "prepared", facts.commit_number) == read
    if asset.window.merges or asset.trigger != Trigger():
        return
    facts = backfill(logged, asset, *minutes(0, 3))
    check(logged, asset, facts)
    for step, table in (
        ("published", asset.published_table),
        ("quarantined", asset.quarantine_table),
        ("panes", asset.panes_table),
    ):
        there = logged.load_rows(table).filter(pc.field("commit_number") == facts.commit_number)
        assert rows(tapped(logged, asset, step, facts.commit_number)) == rows(there.to_pylist())
        assert there.num_rows, step
    assert len(tapped(logged, asset, "read", 0, limit=5)) == 5


def test_the_prepared_step_shows_the_functions_rows(logged: Warehouse) -> None:
    asset = renamed(
        replace(PER_MINUTE, function=lambda rows: rows.where("value > 0.5")), "tapped_filtered"
    )
    (facts,) = run_all(logged, asset)
    prepared = tapped(logged, asset, "prepared", facts.commit_number)
    assert all(r["value"] > 0.5 for r in prepared)
    log = Log(logged, READINGS).read_events(-1, facts.through_arrival)
    assert len(prepared) == log.where("value > 0.5").count() > 0


def test_an_unknown_step_or_run_is_refused(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "tapped_plain")
    assert [step.name for step in list_steps(asset)] == [
        *("read", "prepared", "classified", "late", "partials", "published")
    ]
    with pytest.raises(
        DefinitionError, match=r"have no step 'panes'\. Their steps are read, prepared, "
    ):
        find_step(asset, "panes")
    run_all(logged, asset)
    with pytest.raises(DataError, match="'tapped_plain' has no run 7"):
        tap_step(logged, asset, find_step(asset, "read"), 7, 1)
