"""Tests of erasure, which removes events from the event log and from everything computed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data.runs import run_all
from helpers.data.searched import found
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    ingest,
    published,
    reference,
    renamed,
)
from helpers.suite.nightly import mostly_nightly
from tidemark import expect as q
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define import aggregates as agg
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Session
from tidemark.quality import results
from tidemark.run.erase import deletion
from tidemark.run.erase.erase import erase_events, list_tables
from tidemark.store.event_log.log import Log
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.maintenance import purge_old_files
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

ANN = "ann-who-leaves"
KEYED = renamed(PER_MINUTE, "keyed")
PLAIN = replace(
    renamed(PER_MINUTE, "plain"),
    keys=(),
    # Ann's event of value 7 makes another a duplicate. Her first one brings a window to two.
    deduplicate=Deduplicate("value", within="1 hour"),
    aggregates={"n": agg.count(), "who": agg.max("sensor")},
    expectations=(q.between("n", min_value=2), q.matches_log()),
)
EVERY = (KEYED, PLAIN)


def at(seconds: float, key: str, value: float) -> Event:
    return Event(T0 + int(seconds * 1_000_000), key, value)


ARRIVALS = [
    [at(0, "b", 1), at(1, ANN, 2), at(70, "b", 3), at(75, "c", 4)],
    [at(80, ANN, 7), at(130, "b", 7), at(135, "c", 8)],
    [at(190, ANN, 9), at(200, "b", 10), at(300, "b", 11), at(310, "b", 12)],
    # Too late for its window.
    [at(2, ANN, 13), at(3, "b", 14), at(400, "c", 15)],
]
HERS = {(a, p) for a, some in enumerate(ARRIVALS) for p, e in enumerate(some) if e.key == ANN}


def killed_at(point: str) -> Callable[[str], None]:
    """Return a function that ends an erasure at a fail point."""

    def reach(reached: str) -> None:
        if reached == point:
            raise KeyboardInterrupt

    return reach


# Searches every file of a home.
@pytest.mark.slow
def test_no_file_contains_erased_events(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    for asset in EVERY:
        run_all(warehouse, asset)
    first = warehouse.load_rows("plain").sort_by("window_start").to_pylist()[0]
    assert (first["who"], first["quality"]) == ("b", "passed")
    place = Path(warehouse.path_of(""))
    assert found(place, ANN)
    assert any(told["failures"] for told in warehouse.load_rows(results.TABLE).to_pylist())

    look = erase_events(warehouse, READINGS, EVERY, f"sensor = '{ANN}'", dry_run=True)
    did = erase_events(warehouse, READINGS, EVERY, f"sensor = '{ANN}'")
    assert (did.events, did.arrivals, look.places) == (4, 4, did.places)
    assert look.id is None
    assert {p.table for p in did.places} >= {"keyed", "keyed_late", "plain", "plain_state"}
    assert published(warehouse, KEYED) == reference(ARRIVALS, left_out=HERS)
    assert all(check_parity(warehouse, asset).is_equal for asset in EVERY)
    # The other event alone is too few: its window is quarantined, and no row is published.
    rows = warehouse.load_rows("plain").to_pylist()
    assert [r["n"] for r in rows if r["window_start"] == first["window_start"]] == []
    # The duplicate of Ann's event counts now.
    (third,) = (r for r in rows if r["window_start"].timestamp() * 1e6 == T0 + 2 * MINUTE)
    assert third["n"] == 2
    # Earlier validation results hide their values. Results of the erasure have them.
    told = [
        (r["mode"], r["observed"], r["failures"])
        for r in warehouse.load_rows(results.TABLE).to_pylist()
    ]
    before = [each for each in told if each[0] == "incremental"]
    assert before == [("incremental", results.ERASED_TEXT, [])] * 2
    assert all(text != results.ERASED_TEXT for mode, text, _ in told if mode == "erasure")

    recorded = warehouse.load_rows(erasures.TABLE).to_pylist()
    ended = [row["events"] for row in recorded if row["phase"] == erasures.ENDED]
    erased = Counter({each["arrival"]: each["events"] for events in ended for each in events})
    rows = warehouse.load_rows(READINGS.log_table)["arrival"].to_pylist()
    assert all(
        rows.count(a.arrival) == a.rows - erased[a.arrival]
        for a in Log(warehouse, READINGS).read_timeline()
    )

    again = erase_events(warehouse, READINGS, EVERY, f"sensor = '{ANN}'")
    assert (again.events, again.id, again.places) == (0, None, [])
    list(purge_old_files(warehouse, list_tables(READINGS, EVERY), did.at))
    assert found(place, ANN) == []
    assert all(check_parity(warehouse, asset).is_equal for asset in EVERY)
    run_all(warehouse, KEYED)
    assert published(warehouse, KEYED) == reference(ARRIVALS, left_out=HERS)


# Once for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("point", mostly_nightly(["erased", "erasure"]))
def test_a_killed_erasure_is_completed_by_the_next(
    shared: Warehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    asset = replace(renamed(PER_MINUTE, "of_sessions"), window=Session("90 seconds"))
    if not shared.has_table(READINGS.log_table):
        ingest(shared, READINGS, ARRIVALS)
        run_all(shared, asset)
    # Each case erases other events.
    where = {"erasure": f"sensor = '{ANN}'", "erased": "value = 3"}[point]

    with monkeypatch.context() as dying:
        dying.setattr(deletion, "pass_fail_point", killed_at(point))
        with pytest.raises(KeyboardInterrupt):
            erase_events(shared, READINGS, [asset], where)
    done = erase_events(shared, READINGS, [asset], where)
    resumed = point != "erasure"
    assert (done.resumed, done.events) == (int(resumed), 0 if resumed else len(HERS))
    assert check_parity(shared, asset).is_equal
    assert erasures.find_unfinished(shared, READINGS) == []


# Many runs.
@pytest.mark.slow
@pytest.mark.parametrize("defined", mostly_nightly([True, False]))
def test_a_dropped_asset_does_not_block_an_erasure(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *, defined: bool
) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    run_all(warehouse, KEYED)
    with monkeypatch.context() as dying:
        dying.setattr(deletion, "pass_fail_point", killed_at("erased"))
        with pytest.raises(KeyboardInterrupt):
            erase_events(warehouse, READINGS, [KEYED], f"sensor = '{ANN}'")
    with pytest.raises(DataError, match=r"'keyed' \(keyed, .*`tidemark drop keyed`"):
        erase_events(warehouse, READINGS, [], "value = 15")
    # A drop that is killed leaves some tables, but no state.
    for table in KEYED.own_tables if not defined else [KEYED.state_table]:
        warehouse.drop_table(table)
    done = erase_events(warehouse, READINGS, [KEYED] if defined else [], "value = 15")
    assert (done.resumed, done.events) == (1, 1)
    assert erasures.find_unfinished(warehouse, READINGS) == []
    assert not any(warehouse.has_table(table) for table in KEYED.own_tables)
    if defined:
        run_all(warehouse, KEYED)
        assert published(warehouse, KEYED) == reference(ARRIVALS, left_out=HERS | {(3, 2)})


def test_an_invalid_condition_is_refused_with_the_columns(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:1])
    with pytest.raises(DefinitionError, match="condition on the columns ts, sensor, value, price"):
        erase_events(warehouse, READINGS, [], "customer = 'x'")
