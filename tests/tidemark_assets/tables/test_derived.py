"""Derived sources in Dagster: the lineage, and the sensor that launches their ingest."""

import shutil
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from helpers.dagster.ticks import of as ticks_of
from helpers.data.tables import arrive
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.steps import Step
from tidemark_assets.definitions import build_definitions
from tidemark_assets.sensors import arrivals
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.home.domains import load_domains

TILL = load_domains(["till"])


def test_the_event_log_of_a_join_is_below_those_of_its_sources() -> None:
    graph = build_definitions(["till"], {"tidemark": None}).resolve_asset_graph()
    parents = {
        node.key.to_user_string(): sorted(key.to_user_string() for key in node.parent_keys)
        for node in graph.asset_nodes
    }
    assert parents["paid_orders_log"] == ["orders_log", "payments_log"]
    assert parents["located_payments_log"] == ["orders_log", "payments_log"]
    assert parents["movements_log"] == ["orders_log", "payments_log"]
    assert parents["payments_in_cents_log"] == ["payments_log"]
    assert parents["unpaid_hourly"] == ["paid_orders_log"]
    assert parents["hours_log"] == ["orders_hourly"]
    assert parents["busiest_hours"] == ["hours_log"]
    assert "paid_orders_connector" not in parents


def test_arrivals_of_a_base_launch_the_ingest_of_a_join(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    sensor = arrivals.arrivals("till", [TILL.ingestions["paid_orders"]], {}, lambda _: days)
    ticks = ticks_of(sensor, instance, settings)
    assert ticks.skipped() == "No new data is pending for 'paid_orders'."
    arrive(settings, "orders", 0, 1)
    assert (ticks.requested().run_key or "").startswith("paid_orders ")


def test_other_arrivals_of_a_base_do_not_continue_a_join(settings: Settings) -> None:
    arrive(settings, "orders", 0, 1)
    source = TILL.ingestions["paid_orders"].source
    assert isinstance(source, DerivedSource)
    connector = DerivedConnector(source, settings.warehouse, settings.database)
    chunks = connector.list_pending([])
    taken = [
        Arrival(n, c.arrived_at, None, None, 0, None, None, 0, c.position)
        for n, c in enumerate(chunks)
    ]
    assert connector.list_pending(taken) == []
    step = Step.of_position(taken[-1].position)
    later = {"orders": replace(step.bases["orders"], number=7)}
    position = replace(step, bases={**step.bases, **later}).to_position()
    with pytest.raises(DataError, match="'orders' ends with arrival 1, but its arrival 7 was read"):
        connector.list_pending([*taken, replace(taken[-1], position=position)])
    shutil.rmtree(Path(settings.warehouse) / settings.database / "orders_timeline")
    arrive(settings, "orders", 0, 2)
    with pytest.raises(DataError, match="'orders' was dropped and ingested again"):
        connector.list_pending(taken)
