"""Parsing scenarios with several sources and derived sources."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kiosk import transforms
from tidemark.base.instants import parse_instant
from tidemark.define.derived.join import Between, Join
from tidemark.define.derived.union import Union
from tidemark_streaming.scenario.read.arrivals import ScenarioArrival
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario
from tidemark_streaming.scenario.read.reader import ScenarioError

VALID = """\
name: paid
sources:
  orders:
    event_time: at
    columns: {at: timestamp, id: string}
    watermark: {manual: {}}
  payments:
    event_time: at
    columns: {at: timestamp, id: string, amount: int}
    watermark: {monotonous: {}}
    heartbeat: 1 minute
derived:
  paid: {join: {left: orders, right: payments, on: [id], within: [0 seconds, 1 hour], how: left}}
  all: {union: {of: [orders, paid]}}
arrivals:
- {source: orders, rows: [{at: "2026-01-01 10:00", id: a}]}
- {source: payments, clock: 1 minute}
- {source: payments, end: true}
transform:
  source: paid
  window: {tumbling: {size: 1 hour}}
  keys: [r.amount]
  aggregates: {n: count}
expect:
  derived:
    paid: [{id: a, l.at: 2026-01-01 10:00, amount: 2, arrival: 0}]
tick: 1 second
"""
CASES = yaml.safe_load(Path(__file__).with_name("derived_complaints.yaml").read_text())


def scenario(folder: Path, text: str) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return load_scenario(path)


def test_derived_sources_are_parsed(tmp_path: Path) -> None:
    found = scenario(tmp_path, VALID)
    join, union = (source.derivation for source in found.derived.values())
    assert isinstance(join, Join)
    assert (join.on, join.reach, join.how) == (("id",), Between("0 seconds", "1 hour"), "left")
    assert join.left_columns == {"at": "l_at"}
    assert join.right_columns == {"at": "r_at", "amount": "amount"}
    assert isinstance(union, Union)
    assert [base.name for base in union.base_sources] == ["orders", "paid"]
    assert found.source is found.derived["paid"]
    assert found.transform.keys == ("amount",)
    assert found.expect is not None
    time = found.expect.derived["paid"][0]["l_at"]
    assert (parse_instant(time), found.expect.windows) == (
        parse_instant("2026-01-01T10:00:00Z"),
        None,
    )


def test_arrivals_name_their_source_and_move_the_clock(tmp_path: Path) -> None:
    time = parse_instant("2026-01-01T10:00:00Z")
    assert scenario(tmp_path, VALID).arrivals == (
        ScenarioArrival(((time, "a"),), 1_000_000, source="orders"),
        ScenarioArrival((), 61_000_000, silent_since=0, source="payments"),
        ScenarioArrival((), 62_000_000, ends=True, source="payments"),
        ScenarioArrival((), 63_000_000, ends=True, source="orders"),
    )


def test_a_transform_and_a_tick_are_optional(tmp_path: Path) -> None:
    begin, end = VALID.index("transform:"), VALID.index("expect:")
    found = scenario(tmp_path, VALID[:begin] + VALID[end:].replace("tick: 1 second\n", ""))
    assert (found.windowed, found.source) == (None, found.derived["all"])
    assert found.arrivals[0].clock == 1_000
    with pytest.raises(ScenarioError, match="allowed: derived, unjoined"):
        scenario(tmp_path, VALID[:begin] + "expect:\n  windows: []\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['line']}: {case['by']}")
def test_invalid_scenarios_are_refused_with_their_line(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    assert case["replace"] in VALID
    with pytest.raises(ScenarioError) as refused:
        scenario(tmp_path, VALID.replace(case["replace"], case["by"], 1))
    message = str(refused.value).removeprefix(f"{tmp_path / 'scenario.yaml'}:")
    assert message == f"{case['line']}: {case['says']}"


def test_a_tick_needs_several_sources(tmp_path: Path) -> None:
    text = "name: x\nasset: a:b\narrivals: []\ntick: 1 second\n"
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=":4: 'tick' is for scenarios of several sources"):
        load_scenario(path, lambda _: transforms.orders_per_hour)
