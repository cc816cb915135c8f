"""Test scenarios that prepare rows by a condition and computed columns, in YAML and in SQL."""

from pathlib import Path

import pytest

from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.run.compare import compare_results, find_differences
from tidemark_streaming.scenario.run.simulate import simulate_scenario

ROW_ASSET = """\
name: a-row-asset-in-the-text
sources:
  orders:
    event_time: at
    columns: {at: timestamp, city: string, amount: int}
    watermark: {bounded_out_of_orderness: 10 minutes}
derived:
  paid_orders:
    rows:
      source: orders
      where: amount > 0
      computed: {region: upper(city)}
      columns: {at: timestamp, region: string, amount: int}
arrivals:
- source: orders
  rows:
  - {at: "2026-01-01 10:00", city: Ulm, amount: 5}
  - {at: "2026-01-01 10:10", city: Ulm, amount: 0}
  - {at: "2026-01-01 10:20", city: ulm, amount: 7}
- {source: orders, rows: [{at: "2026-01-01 12:00", city: Bonn, amount: 1}]}
- {source: orders, rows: [{at: "2026-01-01 10:30", city: ULM, amount: 2}]}
transform:
  source: paid_orders
  window: {tumbling: {size: 1 hour}}
  keys: [region]
  aggregates: {orders: count, paid: {sum: amount}}
expect:
  derived:
    paid_orders:
    - {at: "2026-01-01 10:00", region: ULM, amount: 5, arrival: 0}
    - {at: "2026-01-01 10:20", region: ULM, amount: 7, arrival: 0}
    - {at: "2026-01-01 12:00", region: BONN, amount: 1, arrival: 1}
    - {at: "2026-01-01 10:30", region: ULM, amount: 2, arrival: 2}
  windows:
  - {window_start: "2026-01-01 10:00", region: ULM, orders: 2, paid: 12, timing: ON_TIME}
  - {window_start: "2026-01-01 12:00", region: BONN, orders: 1, paid: 1}
"""
"""The last event is late for its window, which had closed."""


SQL = """\
name: regions-by-local-day
source:
  event_time: at
  columns: {at: timestamp, city: string, amount: int}
  watermark: {bounded_out_of_orderness: 10 minutes}
arrivals:
- rows:
  - {at: "2026-01-01 10:00", city: Ulm, amount: 5}
  - {at: "2026-01-01 23:30", city: ulm, amount: 7}
  - {at: "2026-01-01 11:00", city: Ulm, amount: 0}
- rows: [{at: "2026-01-02 02:00", city: Bonn, amount: 1}]
- rows: [{at: "2026-01-01 22:00", city: ULM, amount: 2}]
- rows: [{at: "2026-01-03 12:00", city: Bonn, amount: 1}]
- rows: [{at: "2026-01-02 12:00", city: Bonn, amount: 8}]
transform:
  sql: |
    SELECT upper(s.city) AS region, COUNT(*) AS orders, SUM(s.amount) AS paid
    FROM CALENDAR(TABLE scenario, DESCRIPTOR(at), 'day', 'Europe/Paris') AS s
    WHERE s.amount > 0
    GROUP BY window_start, window_end, upper(city)
  allowed_lateness: 6 hours
expect:
  windows:
  - {window_start: "2025-12-31 23:00", region: ULM, orders: 2, paid: 7, timing: LATE}
  - {window_start: "2026-01-01 23:00", region: ULM, orders: 1, paid: 7}
  - {window_start: "2026-01-01 23:00", region: BONN, orders: 1, paid: 1}
  - {window_start: "2026-01-02 23:00", region: BONN, orders: 1, paid: 1}
"""
"""The fifth arrival is late, and the last one is too late."""

GLOBAL = SQL.replace(
    "CALENDAR(TABLE scenario, DESCRIPTOR(at), 'day', 'Europe/Paris')", "GLOBAL(TABLE scenario)"
)
GLOBAL = (
    GLOBAL[: GLOBAL.index("expect:")]
    + """\
expect:
  windows:
  - {region: ULM, orders: 3, paid: 14}
  - {region: BONN, orders: 3, paid: 10}
"""
)


@pytest.mark.parametrize("text", [ROW_ASSET, SQL, GLOBAL], ids=["row asset", "days", "global"])
@pytest.mark.parametrize("cut", [1, 2])
def test_prepared_rows_are_the_same_in_a_batch_and_a_stream(
    warehouse: Warehouse, tmp_path: Path, text: str, cut: int
) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    scenario = load_scenario(path)
    batch, stream = simulate_scenario(warehouse, scenario, None, cut)
    assert scenario.expect is not None
    assert find_differences(scenario.expect, batch, scenario.slack) == []
    assert compare_results(batch, stream, scenario.slack) == []
