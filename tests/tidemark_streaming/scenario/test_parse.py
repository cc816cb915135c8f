"""Parsing a scenario file: arrivals, values, the transform and the expected results."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tidemark.base.instants import INFINITY, parse_instant
from tidemark.define.column_spelling import write_column
from tidemark.define.identity.fingerprint import compute_digest
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Trigger
from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    MonotonicTimestamps,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
)
from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.read.expectation import Expect
from tidemark_streaming.scenario.read.parse import Scenario, ScenarioArrival, load_scenario

ROOT = Path(__file__).parents[3]
CASES = sorted((ROOT / "tests" / "cases").rglob("*.yaml"))
OWN = sorted((ROOT / "tests" / "scenarios").glob("*.yaml"))

BARE = """\
name: bare
source:
  event_time: ts
  columns: {ts: timestamp, v: KIND}
  watermark: {manual: {}}
arrivals: []
transform:
  window: {global: {}}
  aggregates: {n: count}
"""


def scenario(folder: Path, *changes: tuple[str, str]) -> Scenario:
    """Return the bare scenario with texts replaced."""
    text = BARE
    for old, new in (*changes, ("KIND", "int")):
        text = text.replace(old, new)
    path = folder / "bare.yaml"
    path.write_text(text)
    return load_scenario(path)


@pytest.mark.parametrize("path", CASES + OWN, ids=lambda path: path.stem)
def test_every_scenario_loads(path: Path) -> None:
    loaded = load_scenario(path)
    assert loaded.name
    assert loaded.expect is not None
    assert loaded.arrivals[-1].ends is not ("open: true" in path.read_text())


def test_omitted_settings_have_their_defaults(tmp_path: Path) -> None:
    bare = scenario(tmp_path)
    assert bare.path == tmp_path / "bare.yaml"
    assert bare.expect is None
    assert bare.clock_start == 0
    assert bare.arrivals == (ScenarioArrival((), 0, ends=True),)
    assert (bare.source.name, bare.transform.name) == ("scenario", "result")
    assert bare.source.watermark == Manual()
    assert bare.transform.keys == ()
    assert bare.transform.allowed_lateness == 0
    assert bare.transform.trigger == Trigger(early=None, late=EachArrival())
    assert bare.transform.accumulation == "accumulating"


def test_items_become_arrivals_and_the_last_ends_the_source(tmp_path: Path) -> None:
    items = """\
arrivals:
- rows: [{ts: 1970-01-01 00:00:02, v: 1}, {v: 2}]
- clock: 3 seconds
- watermark: 1970-01-01 00:00:05
- clock: 500 milliseconds
- rows: []
clock_start: 1970-01-01 00:00:10
"""
    arrivals = scenario(tmp_path, ("arrivals: []\n", items)).arrivals
    assert arrivals == (
        ScenarioArrival(((2_000_000, 1), (None, 2)), 10_000_000),
        ScenarioArrival((), 13_000_000),
        ScenarioArrival((), 13_000_000, watermark=5_000_000),
        ScenarioArrival((), 13_500_000),
        ScenarioArrival((), 13_500_000),
        ScenarioArrival((), 13_500_000, ends=True),
    )


def test_an_open_source_has_no_end(tmp_path: Path) -> None:
    assert scenario(tmp_path, ("arrivals: []", "arrivals: []\nopen: true")).arrivals == ()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "7", 7),
        ("int", '"7"', 7),
        ("tinyint", "-128", -128),
        ("BIGINT", "9223372036854775807", 9223372036854775807),
        ("double", "0.1", 0.1),
        ("double", "-.inf", float("-inf")),
        ("float", "0.1", 0.10000000149011612),
        ("decimal(10,2)", "1.11", Decimal("1.11")),
        ("decimal(10,2)", "1e1", Decimal("10.00")),
        ("decimal(38, 18)", "0.123456789012345678", Decimal("0.123456789012345678")),
        ("decimal", "12", Decimal(12)),
        ("string", "no", "no"),
        ("string", "2024-01-01", "2024-01-01"),
        ("string", "1.10", "1.10"),
        ("string", '"null"', "null"),
        ("string", "null", None),
        ("boolean", "true", True),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "1969-12-31 23:59:59.5", -500_000),
        ("timestamp", "2024-01-01T00:00:00+02:00", parse_instant("2023-12-31T22:00:00Z")),
        ("timestamp", "2024-01-01", parse_instant("2024-01-01")),
        ("timestamp", "2024-1-1 0:00:01", parse_instant("2024-01-01T00:00:01")),
        ("timestamp_ntz", "2024-01-01 00:00:01", datetime(2024, 1, 1, 0, 0, 1)),  # noqa: DTZ001
    ],
)
def test_a_value_is_parsed_by_its_column_type(
    tmp_path: Path, kind: str, text: str, value: object
) -> None:
    rows = f"arrivals: [{{rows: [{{v: {text}}}]}}]"
    (found,) = scenario(tmp_path, ("KIND", f'"{kind}"'), ("arrivals: []", rows)).arrivals[0].rows
    assert found == (None, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("{tumbling: {size: 5 seconds, offset: -2 seconds}}", Tumbling("5 seconds", "-2 seconds")),
        ("{sliding: {size: 4 hours, slide: 1 hour}}", Sliding("4 hours", "1 hour")),
        ("{cumulating: {size: 1 day, step: 1 hour}}", Cumulating("1 day", "1 hour")),
        ("{session: {gap: 90 seconds}}", Session("90 seconds")),
        ("{calendar: {unit: day}}", Calendar("day")),
        ("{calendar: {unit: week, timezone: Asia/Tokyo}}", Calendar("week", "Asia/Tokyo")),
        ("{global: {}}", Global()),
    ],
)
def test_windows_are_parsed(tmp_path: Path, text: str, window: Window) -> None:
    assert scenario(tmp_path, ("{global: {}}", text)).transform.window == window


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("{}", Trigger()),
        ("{early: {count: 3}}", Trigger(Count(3), EachArrival())),
        ("{late: {every: 1 minute}}", Trigger(None, Every("1 minute"))),
        ("{early: {arrival: {}}, late: {count: 1}}", Trigger(EachArrival(), Count(1))),
    ],
)
def test_triggers_are_parsed(tmp_path: Path, text: str, trigger: Trigger) -> None:
    given = f"{{global: {{}}}}\n  trigger: {text}"
    assert scenario(tmp_path, ("{global: {}}", given)).transform.trigger == trigger


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("{bounded_out_of_orderness: 4 seconds}", BoundedOutOfOrderness("4 seconds")),
        ("{monotonous: {}}", MonotonicTimestamps()),
        ("{perfect: {}}", Perfect()),
        ("{punctuated: CASE WHEN v = 0 THEN ts END}", Punctuated("CASE WHEN v = 0 THEN ts END")),
        ("{per_partition: {column: v, bound: 1 second}}", PerPartition("v", "1 second")),
        (
            "{per_partition: {column: v, bound: 1 second, idle: 1 hour}}",
            PerPartition("v", "1 second", "1 hour"),
        ),
    ],
)
def test_watermark_strategies_are_parsed(tmp_path: Path, text: str, strategy: Watermark) -> None:
    assert scenario(tmp_path, ("{manual: {}}", text)).source.watermark == strategy


def test_an_aggregate_quotes_its_column(tmp_path: Path) -> None:
    written = "{n: count, low: {min: v}, mean: {avg: v}, p95: {quantile: {of: v, at: 0.95}}}"
    found = scenario(tmp_path, ("{n: count}", written)).transform.aggregates
    names = {name: str(a) for name, a in found.items()}
    assert names == {
        "n": "count(*)",
        "low": "min(v)",
        "mean": "mean(v)",
        "p95": "quantile(v, 0.95)",
    }


def test_the_prepare_function_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    function = scenario(tmp_path).transform.function
    sent = cloudpickle.loads(cloudpickle.dumps(function))
    assert compute_digest(sent) == compute_digest(function)
    assert sent(3) == 3


def test_expected_values_have_the_type_of_their_column(tmp_path: Path) -> None:
    expected = """\
{total: {sum: v}, top: {max: ts}, all: {collect: v}, many: {top_k: {of: v, k: 1}}}
expect:
  windows:
  - {window_start: null, window_end: +infinity, total: "1.50", top: 1970-01-01, all: [0.5, 1]}
  - {many: [{value: 1, count: 2}, {value: null, count: 1}]}
  late: []
"""
    found = scenario(tmp_path, ("KIND", "'decimal(3,2)'"), ("{n: count}", expected)).expect
    window = {
        "window_start": None,
        "window_end": datetime.fromtimestamp(INFINITY // 1_000_000, UTC).replace(
            microsecond=999999
        ),
        "total": Decimal("1.50"),
        "top": datetime(1970, 1, 1, tzinfo=UTC),
        "all": [Decimal("0.50"), Decimal("1.00")],
    }
    many = [{"value": Decimal("1.00"), "count": 2}, {"value": None, "count": 1}]
    assert found == Expect(windows=[window, {"many": many}], panes=None, late=[])


@pytest.mark.parametrize(
    ("column", "written"),
    [("amount", "amount"), ("Amount_2", "Amount_2"), ("order", "`order`"), ("time", "`time`")],
)
def test_a_column_is_quoted_only_if_it_must_be(column: str, written: str) -> None:
    """An aggregate over a plain name has the same text, and fingerprint, as one in Python."""
    assert write_column(column) == written
