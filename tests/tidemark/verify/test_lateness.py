"""Tests of observed lateness: lags behind earlier events, and the events a bound would lose."""

from dataclasses import replace

import pytest

from helpers.data.support import MINUTE, READINGS, T0, Event, ingest, some_arrivals
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import duration
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.bounds import measure_lags


def test_lag_is_measured_from_earlier_arrivals(warehouse: Warehouse) -> None:
    # arrival   0          1                  2
    # minute    10, 2      11, 7, none        4
    # lag        0, 0       0, 3              7
    times = [[10, 2], [11, 7, None], [4]]
    arrivals = [[Event(t and T0 + t * MINUTE, "a", 0.0) for t in ts] for ts in times]
    ingest(warehouse, READINGS, arrivals)
    found = measure_lags(warehouse, READINGS, target=0.3)
    assert (found.events, found.no_event_time) == (5, 1)
    assert found.percentiles[50.0] == 0
    assert found.percentiles[90.0] == found.percentiles[100.0] == 7 * MINUTE
    lost = {c.bound // MINUTE: c.lost for c in found.candidates if c.bound >= MINUTE}
    assert lost == {1: 2, 2: 2, 3: 1, 5: 1, 10: 0}
    assert found.recommended is not None
    assert found.recommended.bound == 3 * MINUTE
    assert found.recommended.share == pytest.approx(0.2)


def test_a_candidate_bound_loses_events_behind_its_watermark(warehouse: Warehouse) -> None:
    arrivals = some_arrivals(count=6, size=20)
    ingest(warehouse, READINGS, arrivals)
    found = {c.bound: c.lost for c in measure_lags(warehouse, READINGS).candidates}
    for bound in ("0 minutes", "1 minute", "3 minutes"):
        source = replace(READINGS, name=f"bound_{bound[0]}", watermark=BoundedOutOfOrderness(bound))
        ingest(warehouse, source, arrivals)
        behind = Log(warehouse, source).read(-1, 5).where("ts < watermark").count()
        assert found[duration(bound)] == behind


def test_a_log_without_events_is_refused(warehouse: Warehouse) -> None:
    Log(warehouse, READINGS).create()
    with pytest.raises(DataError, match="no events with an event time yet"):
        measure_lags(warehouse, READINGS)


def test_a_target_must_be_a_share(warehouse: Warehouse) -> None:
    with pytest.raises(DefinitionError, match=r"at least 0 and less than 1 \(got 5\)"):
        measure_lags(warehouse, READINGS, target=5)
