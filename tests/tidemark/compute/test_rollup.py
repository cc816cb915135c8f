"""Tests that a roll-up equals a direct computation, for any history of its base."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.runs import published_through
from helpers.data.support import MINUTE, PER_MINUTE, T0, minutes, renamed
from helpers.suite.nightly import mostly_nightly
from tidemark import expect as q
from tidemark.base.errors import DataError, DefinitionChangedError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.compute import rollups as rolling
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED
from tidemark.define.rollup import RollUp, rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Count, Trigger
from tidemark.define.windows import Calendar, Session, Sliding, Tumbling, Window
from tidemark.quality import quarantine
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.snapshot.snapshot import Snapshot

FIVE = Tumbling("5 minutes")
BASE = replace(
    PER_MINUTE, aggregates={"n": agg.count(), "about": agg.approx_count_distinct("value")}
)
"""Some events are too late for their minute."""

PATIENT = replace(
    BASE,
    allowed_lateness=10 * MINUTE,
    aggregates={
        **BASE.aggregates,
        "total": agg.sum("price"),
        "most": agg.max("value"),
        "median": agg.quantile("value", 0.5),
        "often": agg.top_k("price", 3),
    },
)
"""No event is too late."""


def larger(
    base: WindowedTransform,
    window: Tumbling | Calendar = FIVE,
    name: str = "",
    keys: Sequence[str] | None = None,
    aggregates: Sequence[str] | None = None,
    expectations: Sequence[object] = (),
) -> RollUp:
    return rollup(
        of=base,
        name=name or f"{base.name}_5",
        window=window,
        keys=keys,
        aggregates=aggregates,
        expectations=expectations,
    )


def direct(warehouse: Warehouse, asset: Definition, late_events: str = "exclude") -> list[Any]:
    """Return the rows of the larger windows, computed directly from the events."""
    asset = replace(asset, name=f"{asset.name}_{late_events}", window=FIVE)
    backfill(warehouse, asset, late_events=late_events)
    return rows(warehouse, asset)


def rows(warehouse: Warehouse, asset: Definition) -> list[Any]:
    return in_order(warehouse.read_frame(asset.published_table))


def in_order(found: DataFrame) -> list[Any]:
    found = found.drop("commit_number", "as_of", "quality")
    return sorted((tuple(r) for r in found.collect()), key=str)


# Many runs.
@pytest.mark.slow
def test_runs_of_any_size_equal_the_direct_computation(logged: Warehouse) -> None:
    base = renamed(PATIENT, "cut")
    stepwise, firings = larger(base), 0
    while incremental(logged, base, limit=2) is not None:
        facts = incremental(logged, stepwise)
        firings += facts is not None and facts.windows > 0
    assert firings == 3
    assert rows(logged, stepwise) == direct(logged, base)
    assert incremental(logged, stepwise) is None
    # Late events fired five-minute windows again that were already published.
    fired = {
        (r["timing"], r["revision"] > 0)
        for r in logged.read_frame(stepwise.published_table).collect()
    }
    assert ("LATE", True) in fired

    some = ["n", "about", "median"]
    at_once = larger(base, name="at_once", keys=[], aggregates=some)
    incremental(logged, at_once)
    by_hand = replace(base, keys=(), aggregates={k: base.aggregates[k] for k in some})
    assert rows(logged, at_once) == direct(logged, renamed(by_hand, "by_hand"))


# Many runs.
@pytest.mark.slow
def test_a_roll_up_follows_backfills_and_corrections_of_its_base(logged: Warehouse) -> None:
    base = renamed(BASE, "followed")
    whole = larger(base, expectations=(q.between("n", max_value=30), q.matches_log()))
    first = T0 - T0 % (5 * MINUTE)
    backfill(logged, base, first - 2 * MINUTE, first + 7 * MINUTE)
    incremental(logged, whole)
    starts = (
        logged.read_frame(whole.published_table).select(F.unix_micros("window_start")).distinct()
    )
    assert [r[0] for r in starts.collect()] == [first], "a part of a window was published"
    incremental(logged, base, limit=3)
    backfill(logged, base, *minutes(2, 4))
    incremental(logged, base)
    incremental(logged, whole)
    assert check_parity(logged, whole).is_equal
    # Events that were too late for their minute are not in the larger windows either.
    counted = logged.read_frame(base.state_table).where(ADMITTED).agg(F.sum("events"))
    computed = quarantine.read_computed(logged, whole, ())
    assert computed.agg(F.sum("events")).collect() == counted.collect()

    assert correct(logged, base) is not None
    facts = incremental(logged, whole)
    assert facts is not None
    assert facts.mode == "rollup"
    complete = direct(logged, base, "include")
    computed = quarantine.read_computed(logged, whole, ())
    assert in_order(computed) == complete
    withheld = logged.read_frame(whole.quarantine_table).collect()
    assert len(withheld) == sum(r[3] > 30 for r in complete) > 0
    assert {f["expectation"] for r in withheld for f in r["failed_expectations"]} == {
        "between(n, max_value=30)"
    }


def test_a_larger_window_is_complete_through_its_least_complete_part(logged: Warehouse) -> None:
    starts = range(-10, 20, 5)
    windows = logged.spark.createDataFrame(
        [(s * MINUTE, (s + 5) * MINUTE) for s in starts], "s BIGINT, e BIGINT"
    ).select(
        F.timestamp_micros("s").alias("window_start"), F.timestamp_micros("e").alias("window_end")
    )

    def cover(start: int, end: int, arrival: int) -> BackfilledRange:
        return BackfilledRange(start * MINUTE, end * MINUTE, TimelinePosition(arrival))

    def found(*covers: BackfilledRange) -> dict[int, int]:
        coverage = rolling.find_rollup_coverage(
            larger(PATIENT), Coverage(TimelinePosition(1), covers)
        )
        picked = windows.select(coverage.position_column("arrival")).collect()
        return {s: r[0] for s, r in zip(starts, picked, strict=True) if r[0] > 1}

    assert found(cover(0, 10, 7)) == {0: 7, 5: 7}
    assert found(cover(1, 14, 7)) == {5: 7}
    assert found(cover(0, 7, 9), cover(7, 15, 6)) == {0: 9, 5: 6, 10: 6}
    assert found(cover(0, 7, 9), cover(8, 15, 6)) == {0: 9, 10: 6}
    assert found(cover(-7, 0, 3)) == {-5: 3}


# Once for each fail point.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_roll_up_run_is_repeated(
    logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Windows that fire once are appended, so a retry must not include newer events.
    base = replace(BASE, name="killed", allowed_lateness=0)
    whole, twin = larger(base), larger(base, name="twin")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    incremental(logged, base, limit=4)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "add_run", die)
        with pytest.raises(KeyboardInterrupt):
            incremental(logged, whole)
    assert published_through(logged, whole) == -1
    incremental(logged, base)
    for asset in (whole, twin):
        incremental(logged, asset)
    assert rows(logged, whole) == rows(logged, twin)
    assert published_through(logged, whole) == 1


# Many runs.
@pytest.mark.slow
@pytest.mark.parametrize(
    "more", mostly_nightly([True, False]), ids=["after its base ran", "at once"]
)
@pytest.mark.parametrize(
    "other",
    mostly_nightly([{"window": Tumbling("10 minutes")}, {"keys": []}, {"aggregates": ["about"]}]),
    ids=["window", "keys", "aggregates"],
)
def test_a_changed_roll_up_replaces_all_its_windows(
    engine: Settings, logged: Warehouse, other: dict[str, Any], more: bool
) -> None:
    name = "_".join(["other", *other, str(more).lower()])
    base = renamed(BASE, f"{name}_base")
    judged = (q.matches_log(),)
    before = larger(base, name=name, aggregates=["n"], expectations=judged)
    changed: dict[str, Any] = {"aggregates": ["n"], "expectations": judged, **other}
    after = larger(base, name=name, **changed)
    incremental(logged, base, limit=4)
    incremental(logged, before)
    if more:
        incremental(logged, base)
    assert incremental(logged, after) is not None
    assert check_parity(logged, after).is_equal
    snapshot = Snapshot(engine.model_copy(update={"database": logged.database}))
    assert snapshot.table_id(name) == Asset(logged, after).table_id
    assert snapshot.unfollowed_rollups({name: base.name}) == {}
    assert incremental(logged, after, pinned_definition=True) is None
    # A run with the earlier definition pinned stops; a new run with it restores its windows.
    with pytest.raises(DefinitionChangedError, match=f"an earlier definition of '{name}'"):
        incremental(logged, before, pinned_definition=True)
    assert incremental(logged, before) is not None
    assert check_parity(logged, before).is_equal


def test_a_base_that_never_ran_is_named(logged: Warehouse) -> None:
    with pytest.raises(DataError, match="roll-up of 'idle', which has not run yet"):
        incremental(logged, larger(renamed(BASE, "idle")))


def test_operations_that_only_the_base_supports_are_refused(logged: Warehouse) -> None:
    whole = larger(BASE)
    for refused in (
        lambda: backfill(logged, whole),
        lambda: correct(logged, whole),
        lambda: incremental(logged, whole, limit=1),
    ):
        with pytest.raises(DefinitionError, match="'per_minute_5' is a roll-up"):
            refused()


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (Tumbling("1 hour"), Tumbling("1 day")),
        (Tumbling("15 minutes", "5 minutes"), Tumbling("1 hour", "20 minutes")),
        (Tumbling("1 hour"), Calendar("month", "America/New_York")),
        (Tumbling("30 minutes"), Calendar("day", "Asia/Kolkata")),
        (Calendar("day", "Europe/Paris"), Calendar("week", "Europe/Paris")),
    ],
)
def test_windows_that_contain_whole_base_windows_are_accepted(
    inner: Window, outer: Tumbling | Calendar
) -> None:
    base = replace(BASE, window=inner)
    assert larger(base, window=outer).window == outer


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (Tumbling("1 hour"), Tumbling("90 minutes")),
        (Tumbling("1 hour"), Tumbling("1 day", "30 minutes")),
        (Tumbling("1 hour"), Calendar("day", "Asia/Kolkata")),
        (Tumbling("7 hours"), Calendar("day")),
        (Calendar("week"), Calendar("month")),
        (Calendar("day", "Europe/Paris"), Calendar("month", "Europe/Berlin")),
        (Calendar("day"), Tumbling("2 days")),
        (Sliding("1 hour", "30 minutes"), Tumbling("1 day")),
        (Session("1 hour"), Tumbling("1 day")),
    ],
)
def test_windows_that_would_split_base_windows_are_refused(
    inner: Window, outer: Tumbling | Calendar
) -> None:
    with pytest.raises(DefinitionError, match=r"the windows of 'per_minute' .* can't be"):
        larger(replace(BASE, window=inner), window=outer)


def test_an_invalid_roll_up_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no key 'town'; it has: sensor"):
        larger(BASE, keys=["town"])
    with pytest.raises(DefinitionError, match="no aggregate 'mode'; it has: n, about"):
        larger(BASE, aggregates=["mode"])
    with pytest.raises(DefinitionError, match=r"sets `late` \(every 2 events\)"):
        larger(replace(BASE, trigger=Trigger(late=Count(2))))
    with pytest.raises(DefinitionError, match="Roll up its base 'per_minute' instead"):
        rollup(of=larger(BASE), name="of_larger", window=Tumbling("1 hour"))
