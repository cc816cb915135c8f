"""Panes as JSON records for any column type, and the panes of a change."""

import json
from base64 import b64encode
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from helpers.data.support import MINUTE, PER_MINUTE, T0
from tidemark.base.instants import BEGINNING, INFINITY, as_datetime
from tidemark.define import aggregates as agg
from tidemark_streaming.sink.changes import Change
from tidemark_streaming.sink.panes import Pane, derive_panes, index_firings
from tidemark_streaming.sink.record import render_record, reset_records

ASSET = replace(PER_MINUTE, name="orders", aggregates={"n": agg.count()}, accumulation="discarding")
START, END = "2023-11-14T22:14:00Z", "2023-11-14T22:15:00Z"
INSTANT = pa.timestamp("us", "UTC")


def row(n: int, *, commit_number: int = 7, revision: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a published row of a window: one minute of sensor a."""
    return {
        "window_start": as_datetime(T0),
        "window_end": as_datetime(T0 + MINUTE),
        "sensor": "a",
        "n": n,
        "events": n,
        "late_events": 0,
        "revision": revision,
        "timing": "ON_TIME",
        "final": False,
        "last_arrival": 3,
        "as_of": 4,
        "commit_number": commit_number,
        "quality": None,
        **more,
    }


def written(pane: Pane, count: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return key and value of the pane's record, parsed as strict JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    told = render_record(ASSET, 5, pane, "run-1", count)
    assert 0 <= told.partition < count
    key, value = (json.loads(part, parse_constant=refuse) for part in told[:2])
    return key, value


def test_a_record_has_the_documented_fields() -> None:
    key, value = written(Pane(row(2), 0, "ON_TIME", {"n": 2}))
    assert key == {
        "asset": "orders",
        "epoch": 5,
        "window_start": START,
        "window_end": END,
        "keys": {"sensor": "a"},
        "commit_number": 7,
        "pane": 0,
        "retraction": False,
    }
    assert value == {
        **key,
        "timing": "ON_TIME",
        "last": False,
        "values": {"n": 2},
        "events": 2,
        "late_events": 0,
        "last_arrival": 3,
        "as_of": 4,
        "quality": None,
        "run": "run-1",
    }


def test_a_retraction_has_the_key_of_its_pane_except_the_flag() -> None:
    (key, _), (back, _) = (
        written(Pane(row(2), 0, "ON_TIME", {"n": 2}, retraction=retraction))
        for retraction in (False, True)
    )
    assert {**key, "retraction": True} == back


def test_a_global_windows_bounds_are_null_and_infinity() -> None:
    ever = row(2, window_start=as_datetime(BEGINNING), window_end=as_datetime(INFINITY))
    key, _ = written(Pane(ever, 0, "ON_TIME", {"n": 2}))
    assert (key["window_start"], key["window_end"]) == (None, "+infinity")


NESTED = pa.struct({"price": pa.decimal128(10, 2), "at": INSTANT, "no": pa.float64()})


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (None, pa.int64(), None),
        (2**62, pa.int64(), 2**62),
        (True, pa.bool_(), True),
        (0.1, pa.float64(), 0.1),
        (float("nan"), pa.float64(), "nan"),
        (float("inf"), pa.float64(), "inf"),
        (float("-inf"), pa.float64(), "-inf"),
        (Decimal("1234567890123456789.10"), pa.decimal128(38, 2), "1234567890123456789.10"),
        (as_datetime(T0 + 1), INSTANT, "2023-11-14T22:14:00.000001Z"),
        (date(2023, 11, 14), pa.date32(), "2023-11-14"),
        (b"\x00\xff", pa.binary(), b64encode(b"\x00\xff").decode()),
        ("Zürich\n", pa.string(), "Zürich\n"),
        (
            [{"price": Decimal("1.50"), "at": as_datetime(T0), "no": float("nan")}, None],
            pa.list_(NESTED),
            [{"price": "1.50", "at": START, "no": "nan"}, None],
        ),
    ],
    ids=str,
)
def test_a_value_of_any_type_is_json(value: object, kind: pa.DataType, told: object) -> None:
    (there,) = pa.table({"value": pa.array([value], kind)}).to_pylist()
    key, out = written(Pane(row(2, sensor=there["value"]), 0, "ON_TIME", there))
    assert (out["values"], key["keys"]) == ({"value": told}, {"sensor": told})


def test_windows_of_the_same_keys_are_in_one_partition() -> None:
    later: dict[str, Any] = {"window_start": as_datetime(T0 + MINUTE), "commit_number": 9}
    places = {
        sensor: {
            render_record(
                ASSET, epoch, Pane(row(1, sensor=sensor, **more), 0, "LATE", {}), None, 8
            )[2]
            for epoch, more in ((5, {}), (6, later))
        }
        for sensor in "abcdefgh"
    }
    assert all(len(each) == 1 for each in places.values())
    assert len(set.union(*places.values())) > 1


def test_a_new_epoch_is_announced_in_each_partition() -> None:
    told = reset_records(ASSET, 9, 3)
    assert [r.partition for r in told] == [0, 1, 2]
    assert {r.key == r.value for r in told} == {True}
    assert json.loads(told[0].key) == {"asset": "orders", "epoch": 9, "reset": True}


def pane_row(n: int, pane: int, commit_number: int = 8) -> dict[str, Any]:
    return {**row(n, commit_number=commit_number), "pane": pane, "timing": "LATE"}


def out(accumulation: str, change: Change, *since: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return the panes of a change: number, values and whether it is a retraction."""
    asset = replace(ASSET, accumulation=accumulation)
    return [
        (p.pane, p.values and p.values["n"], p.retraction)
        for p in derive_panes(asset, change, index_firings(asset, since))
    ]


FIRST, AGAIN = row(3), row(6, commit_number=8, revision=2)
TWO = pane_row(1, 1), pane_row(2, 2)


@pytest.mark.parametrize(
    ("accumulation", "change", "since", "expected"),
    [
        ("accumulating", Change(FIRST, AGAIN), (), [(2, 6, False)]),
        ("retracting", Change(FIRST, AGAIN), (), [(0, 3, True), (2, 6, False)]),
        ("discarding", Change(None, FIRST), (), [(0, 3, False)]),
        # Each firing in order, in any order of the table of panes.
        ("discarding", Change(FIRST, AGAIN), TWO[::-1], [(1, 1, False), (2, 2, False)]),
        # One firing is missing: retract the window and publish it whole.
        ("discarding", Change(FIRST, AGAIN), TWO[1:], [(0, 3, True), (2, 6, False)]),
        ("discarding", Change(FIRST, AGAIN), (), [(0, 3, True), (2, 6, False)]),
        ("discarding", Change(FIRST, AGAIN, recomputed=True), TWO, [(0, 3, True), (2, 6, False)]),
        # The window became final without a new event.
        ("discarding", Change(FIRST, {**FIRST, "final": True}), (), [(0, None, False)]),
        *((how, Change(FIRST, None), (), [(0, 3, True)]) for how in ("accumulating", "discarding")),
    ],
)
def test_a_change_is_published_by_its_accumulation_mode(
    accumulation: str,
    change: Change,
    since: tuple[dict[str, Any], ...],
    expected: list[tuple[object, ...]],
) -> None:
    assert out(accumulation, change, *since) == expected


def test_a_window_with_nan_that_becomes_final_has_no_new_values() -> None:
    nan = {**FIRST, "n": float("nan")}
    change = Change(nan, {**nan, "n": float("nan"), "final": True})
    (pane,) = derive_panes(ASSET, change, {})
    assert (pane.values, pane.retraction) == (None, False)
