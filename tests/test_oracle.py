"""Test the oracle against cases of other engines and results computed by hand."""

import math
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.model.oracle import Row, micros, moment, simulate, windows_of
from helpers.model.random_scenarios import ABSENT, SESSIONS, scenarios

CASES = Path(__file__).parent / "cases"
OTHER_AGGREGATES = {
    "flink-window-top-2-negative-offset",
    "flink-window-top-2-offset",
    "risingwave-eowc-top-1",
    "spark-session-more-aggregates",
}
"""Cases with aggregates that the oracle does not compute."""
SUITES = [
    file
    for file in sorted((CASES / "suites").glob("*/*.yaml"))
    # The oracle computes windows of one source.
    if "sources" not in yaml.safe_load(file.read_text()) and file.stem not in OTHER_AGGREGATES
]
FILES = [*sorted(CASES.glob("*.yaml")), *SUITES]
NEGATIVE = sorted((CASES / "negative").glob("*.yaml"))

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def differences(found: Row, expected: Row) -> list[str]:
    """Return the differences in `windows`, `panes` and `late`. Skip parts without an expectation.

    Only the columns in the expectation are compared. Rows may be in any order, and each must occur
    once.
    """
    told: list[str] = []
    for part in ("windows", "panes", "late"):
        if expected.get(part) is None:
            continue
        left: list[Row] = list(found[part])
        for want in expected[part]:
            match = [i for i, row in enumerate(left) if all(_same(row[c], want[c]) for c in want)]
            if match:
                del left[match[0]]
            else:
                told.append(f"{part}: missing {want}")
        told += [f"{part}: unexpected {row}" for row in left]
    return told


def _same(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    x, y = _read(a), _read(b)
    if isinstance(x, Decimal) and isinstance(y, Decimal) and float in (type(a), type(b)):
        return math.isclose(x, y, rel_tol=1e-9)
    return x == y


def _read(value: object) -> object:
    """Parse a value as a number or an instant, if possible."""
    if value is None or isinstance(value, bool | list):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        try:
            return moment(str(value))
        except ValueError:
            return value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_case_gives_its_expected_result(file: Path) -> None:
    case = yaml.safe_load(file.read_text())
    assert differences(simulate(case), case["expect"]) == []


@pytest.mark.parametrize("file", NEGATIVE, ids=lambda file: file.stem)
def test_a_wrong_expectation_is_reported(file: Path) -> None:
    case = yaml.safe_load(file.read_text())
    told = differences(simulate(case), case["expect"])
    assert [line.split(":")[1].split()[0] for line in told] == ["missing", "unexpected"]


def at(*times: int) -> Row:
    """Return an arrival of events at these seconds, which are also their values."""
    return {"rows": [{"ts": f"1970-01-01 00:00:{n:02}", "v": n} for n in times]}


def to(second: int) -> Row:
    return {"watermark": f"1970-01-01 00:00:{second:02}"}


def clock(seconds: int) -> Row:
    return {"clock": f"{seconds} seconds"}


def result(window: Row, *arrivals: Row, strategy: str = "manual", **more: Any) -> Row:  # noqa: ANN401
    return simulate(
        {
            "name": "by hand",
            "source": {
                "event_time": "ts",
                "columns": {"ts": "timestamp", "v": "int"},
                "watermark": {strategy: {}},
            },
            "arrivals": list(arrivals),
            "open": more.pop("still_open", False),
            "transform": {"window": window, "aggregates": {"values": {"collect": "v"}}} | more,
        }
    )


def span(row: Row) -> tuple[float, float]:
    """Return the start and end of a row's window in seconds."""
    start, end = (micros(moment(row[bound])) / 1e6 for bound in ("window_start", "window_end"))
    return start, end


def panes(found: Row) -> list[tuple[Any, ...]]:
    """Return the window, index, timing (with `-` for a retraction) and values of each pane."""
    return [
        (*span(p), p["pane"], ("-" if p["retraction"] else "") + p["timing"], p["values"])
        for p in found["panes"]
    ]


TEN: Row = {"tumbling": {"size": "10 seconds"}}
GAP: Row = {"session": {"gap": "5 seconds"}}


def test_a_session_grows_past_its_end_after_it_fired() -> None:
    found = result(
        GAP,
        at(1),
        at(12),
        to(6),  # [1, 6) fires.
        at(6),  # Touches it.
        at(7),  # Touches [12, 17) as well: all are [1, 17).
        to(17),
        at(3, 2),  # [3, 8) is late, [2, 7) is too late.
        allowed_lateness="10 seconds",
        accumulation="retracting",
    )
    assert panes(found) == [
        (1, 6, 0, "ON_TIME", [1]),
        (1, 6, 1, "-ON_TIME", [1]),
        (1, 17, 1, "ON_TIME", [1, 6, 7, 12]),
        (1, 17, 2, "-LATE", [1, 6, 7, 12]),
        (1, 17, 2, "LATE", [1, 3, 6, 7, 12]),
    ]
    (window,) = found["windows"]
    assert (window["revision"], window["timing"], window["late_events"]) == (2, "LATE", 1)
    (late,) = found["late"]
    assert (span(late), late["v"], late["lateness_seconds"]) == ((2, 7), 2, 15)


def test_two_fired_sessions_stay_published_until_their_merged_session_fires() -> None:
    before = [at(1), at(8), to(13), at(5)]
    how: Row = {
        "allowed_lateness": "10 seconds",
        "accumulation": "retracting",
        "trigger": {"late": {"count": 2}},
    }
    found = result(GAP, *before, still_open=True, **how)
    assert [(*span(w), w["values"]) for w in found["windows"]] == [(1, 6, [1]), (8, 13, [8])]
    found = result(GAP, *before, at(6), still_open=True, **how)
    assert [(*span(w), w["values"]) for w in found["windows"]] == [(1, 13, [1, 5, 6, 8])]
    assert panes(found) == [
        (1, 6, 0, "ON_TIME", [1]),
        (1, 6, 1, "-LATE", [1]),
        (1, 13, 1, "LATE", [1, 5, 6, 8]),
        (8, 13, 0, "ON_TIME", [8]),
        (8, 13, 1, "-LATE", [8]),
    ]


def test_a_merged_session_continues_from_the_highest_pane_index() -> None:
    found = result(
        GAP,
        at(11),
        at(12),
        at(1),
        at(6),  # Touches [1, 6) and [11, 17).
        accumulation="discarding",
        trigger={"early": {"arrival": {}}},
    )
    assert panes(found) == [
        (1, 6, 0, "EARLY", [1]),
        (1, 17, 2, "EARLY", [6]),
        (1, 17, 3, "ON_TIME", []),
        (11, 16, 0, "EARLY", [11]),
        (11, 17, 1, "EARLY", [12]),
    ]


def test_intervals_fire_at_multiples_without_events_of_that_instant() -> None:
    found = result(
        TEN,
        at(1),
        clock(3),
        at(2),
        clock(1),  # 4: fires 1 and 2.
        at(3),
        clock(3),  # 7
        clock(9),  # 16: fires 3 at 8, and nothing at 12 and 16.
        to(10),
        at(4),
        clock(3),  # 19
        clock(1),  # 20: fires 4.
        at(5),
        to(30),
        allowed_lateness="20 seconds",
        accumulation="discarding",
        trigger={"early": {"every": "4 seconds"}, "late": {"every": "5 seconds"}},
    )
    assert panes(found) == [
        (0, 10, 0, "EARLY", [1, 2]),
        (0, 10, 1, "EARLY", [3]),
        (0, 10, 2, "ON_TIME", []),
        (0, 10, 3, "LATE", [4]),
        (0, 10, 4, "LATE", [5]),
    ]
    assert [p["last"] for p in found["panes"]] == [False, False, False, False, True]


def test_the_rest_of_a_count_fires_on_time_and_at_finality() -> None:
    arrivals = [at(1, 2, 3), to(10), at(4, 5, 6)]
    how: Row = {
        "allowed_lateness": "20 seconds",
        "accumulation": "discarding",
        "trigger": {"early": {"count": 2}, "late": {"count": 2}},
    }
    want = [
        (0, 10, 0, "EARLY", [1, 2]),
        (0, 10, 1, "ON_TIME", [3]),
        (0, 10, 2, "LATE", [4, 5]),
        (0, 10, 3, "LATE", [6]),
    ]
    found = result(TEN, *arrivals, still_open=True, **how)
    assert panes(found) == want[:3]
    (window,) = found["windows"]
    assert (window["values"], window["late_events"], window["final"]) == ([1, 2, 3, 4, 5], 2, False)
    found = result(TEN, *arrivals, to(30), still_open=True, **how)
    assert panes(found) == want
    (window,) = found["windows"]
    told = (window["values"], window["late_events"], window["final"])
    assert told == ([1, 2, 3, 4, 5, 6], 3, True)


def test_the_arrival_that_passes_the_end_fires_on_time() -> None:
    found = result(TEN, at(1), at(2, 10), strategy="monotonous", trigger={"early": {"arrival": {}}})
    assert panes(found) == [
        (0, 10, 0, "EARLY", [1]),
        (0, 10, 1, "ON_TIME", [1, 2]),
        (10, 20, 0, "EARLY", [10]),
        (10, 20, 1, "ON_TIME", [10]),
    ]


def test_windows_with_only_late_events_fire_late_only() -> None:
    found = result(TEN, to(10), at(1), at(2), allowed_lateness="5 seconds")
    assert panes(found) == [(0, 10, 0, "LATE", [1]), (0, 10, 1, "LATE", [1, 2])]


def test_an_event_is_too_late_for_one_of_two_sliding_windows() -> None:
    found = result({"sliding": {"size": "10 seconds", "slide": "5 seconds"}}, to(10), at(7))
    assert panes(found) == [(5, 15, 0, "ON_TIME", [7])]
    assert [(*span(row), row["lateness_seconds"]) for row in found["late"]] == [(0, 10, 3)]


def test_the_global_window_closes_with_the_stream() -> None:
    found = result({"global": {}}, at(1), to(50), at(2, 3), trigger={"early": {"count": 2}})
    bounds = {(p["window_start"], p["window_end"]) for p in found["panes"]}
    assert bounds == {(None, "+infinity")}
    told = [(p["pane"], p["timing"], p["last"], p["values"]) for p in found["panes"]]
    assert told == [(0, "EARLY", False, [1, 2]), (1, "ON_TIME", True, [1, 2, 3])]


def test_aggregates_give_the_values_computed_by_hand() -> None:
    events = [(5, 1), (2, 2), (5, 3), (2, 4), (1, None), (9, None)]
    rows = [{"ts": f"1970-01-01 00:00:0{n}", "v": v} for n, v in events]
    kinds = ("sum", "avg", "min", "max", "stddev", "first", "last", "collect", "count_distinct")
    quantile = {"quantile": {"of": "v", "at": 0.5}}
    aggregates = {"n": "count", "half": quantile, **{kind: {kind: "v"} for kind in kinds}}
    (window,) = result(TEN, {"rows": rows}, aggregates=aggregates)["windows"]
    deviation = pytest.approx((5 / 3) ** 0.5)
    want = [6, 2.0, 10, 2.5, 1, 4, deviation, 2, 3, [1, 2, 3, 4], 4]
    assert [window[name] for name in aggregates] == want


def test_null_event_times_and_null_values() -> None:
    nothing: Row = {"ts": None, "v": 1}
    empty: Row = {"ts": "1970-01-01 00:00:01.5", "v": None}
    aggregates = {
        "n": "count",
        "some": {"count_distinct": "v"},
        **{kind: {kind: "v"} for kind in ("sum", "avg", "max", "stddev", "first", "collect")},
    }
    found = result(TEN, {"rows": [nothing, empty]}, keys=["v"], aggregates=aggregates)
    assert found["windows"] == [
        {
            "window_start": "1970-01-01T00:00:00Z",
            "window_end": "1970-01-01T00:00:10Z",
            "v": None,
            "timing": "ON_TIME",
            "revision": 0,
            "final": True,
            "late_events": 0,
            "n": 1,
            "some": 0,
            **dict.fromkeys(("sum", "avg", "max", "stddev", "first")),
            "collect": [],
        }
    ]
    bare = dict.fromkeys(("ts", "window_start", "window_end", "watermark", "lateness_seconds"))
    assert found["late"] == [{**bare, "v": 1}]
    assert (found["name"], found["watermark"]) == ("by hand", "+infinity")


@pytest.mark.parametrize(
    ("window", "event", "want"),
    [
        (TEN, "1969-12-31 23:59:59.999999", ["1969-12-31 23:59:50/1970-01-01"]),
        (
            {"tumbling": {"size": "10 seconds", "offset": "-3 seconds"}},
            "1970-01-01",
            ["1969-12-31 23:59:57/1970-01-01 00:00:07"],
        ),
        (
            {"sliding": {"size": "10 seconds", "slide": "4 seconds"}},
            "1970-01-01 00:00:10",
            ["1970-01-01 00:00:08/1970-01-01 00:00:18", "1970-01-01 00:00:04/1970-01-01 00:00:14"],
        ),
        (
            {"cumulating": {"size": "9 seconds", "step": "3 seconds", "offset": "1 second"}},
            "1970-01-01 00:00:04",
            ["1970-01-01 00:00:01/1970-01-01 00:00:07", "1970-01-01 00:00:01/1970-01-01 00:00:10"],
        ),
        (
            {"calendar": {"unit": "week"}},
            "2024-12-31",
            ["2024-12-30/2025-01-06"],
        ),
        (
            {"calendar": {"unit": "day", "timezone": "Europe/Paris"}},
            "2024-03-31 12:00:00",
            ["2024-03-30 23:00:00/2024-03-31 22:00:00"],
        ),
        (
            {"calendar": {"unit": "day", "timezone": "America/Sao_Paulo"}},
            "2018-11-04 03:00:00",
            ["2018-11-04 03:00:00/2018-11-05 02:00:00"],
        ),
        (
            {"calendar": {"unit": "month", "timezone": "America/New_York"}},
            "2024-03-01 04:59:59",
            ["2024-02-01 05:00:00/2024-03-01 05:00:00"],
        ),
        (
            {"calendar": {"unit": "year", "timezone": "Asia/Kathmandu"}},
            "2023-12-31 18:15:00",
            ["2023-12-31 18:15:00/2024-12-31 18:15:00"],
        ),
    ],
)
def test_an_event_is_in_the_expected_windows(window: Row, event: str, want: list[str]) -> None:
    bounds = [tuple(micros(moment(bound)) for bound in span.split("/")) for span in want]
    assert windows_of(window, micros(moment(event))) == bounds


@few
@given(scenarios())
def test_all_accumulation_modes_agree(scenario: Row) -> None:
    def told(accumulation: str) -> Row:
        return simulate(
            {**scenario, "transform": scenario["transform"] | {"accumulation": accumulation}}
        )

    accumulating, discarding, retracting = map(told, ("accumulating", "discarding", "retracting"))
    for other in (discarding, retracting):
        assert other["windows"] == accumulating["windows"]
        assert other["late"] == accumulating["late"]
    assert [p for p in retracting["panes"] if not p["retraction"]] == accumulating["panes"]
    published = sum(w["n"] for w in accumulating["windows"])
    assert sum(p["n"] for p in discarding["panes"]) == published
    signed = ((-1 if p["retraction"] else 1) * p["n"] for p in retracting["panes"])
    assert sum(signed) == published


@few
@given(scenarios(windows=SESSIONS, opens=st.just(False), uniques=ABSENT))
def test_each_row_of_a_closed_source_is_counted_or_late(scenario: Row) -> None:
    found = simulate(scenario)
    rows = sum(len(item.get("rows", [])) for item in scenario["arrivals"])
    assert sum(w["n"] for w in found["windows"]) + len(found["late"]) == rows
    assert all(w["final"] for w in found["windows"])
    by_key: dict[str, list[tuple[float, float]]] = {}
    for row in found["windows"]:
        key = str([row[name] for name in scenario["transform"]["keys"]])
        by_key.setdefault(key, []).append(span(row))
    for spans in by_key.values():
        assert all(one[1] < other[0] for one, other in pairwise(spans))
