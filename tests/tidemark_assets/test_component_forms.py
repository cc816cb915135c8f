"""Test that YAML gives the same sources, event logs and windows as Python, for each form of them.

Moving a definition from one to the other then needs no rebuild.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import DataFrame

import tidemark as tm
from helpers.suite.pages import blocks
from tidemark.connectors import DeltaConnector, FileConnector, Json, KafkaConnector
from tidemark.dagster import EventLogs, WindowedAsset, dagster_asset
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.identity.derivation import derivation_fingerprint
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark_assets.asset_component import _read_nodes
from tidemark_assets.connector_nodes import read_ingestion
from tidemark_streaming.scenario.read.parse import Definitions

# Dagster itself uses what Pydantic and Dagster no longer recommend, or not yet.
pytestmark = pytest.mark.filterwarnings("ignore")

DAYS = dg.DailyPartitionsDefinition("2026-01-01")


def define_source(name: str, amount: str) -> tm.Source:
    return tm.Source(
        name=name,
        columns=f"at TIMESTAMP, id STRING, city STRING, {amount} DOUBLE",
        event_time="at",
        watermark=tm.BoundedOutOfOrderness("10 minutes"),
    )


ORDERS = define_source("orders", "amount")
PAYMENTS = define_source("payments", "paid")
SOURCES = """\
sources:
  orders:
    event_time: at
    columns: {at: timestamp, id: string, city: string, amount: double}
    watermark: {bounded_out_of_orderness: 10 minutes}
  payments:
    event_time: at
    columns: {at: timestamp, id: string, city: string, paid: double}
    watermark: {bounded_out_of_orderness: 10 minutes}
"""
RENAMED = {
    "orders.at": "l_at",
    "payments.at": "r_at",
    "orders.city": "l_city",
    "payments.city": "r_city",
}


def in_joined_hours(source: tm.Source, value: str) -> tm.WindowedTransform:
    @tm.windowed_asset(
        source=source,
        window=tm.Tumbling("1 day"),
        allowed_lateness="1 hour",
        aggregates={"number": tm.agg.count(), "total": tm.agg.sum(value)},
    )
    def over_derived(rows: DataFrame) -> DataFrame:
        return rows

    return over_derived


@tm.windowed_asset(
    source=ORDERS,
    keys=["city"],
    window=tm.Tumbling("1 hour"),
    aggregates={"revenue": tm.agg.sum("amount")},
)
def city_hours(rows: DataFrame) -> DataFrame:
    return rows


@tm.row_asset(source=ORDERS, columns="at TIMESTAMP, region STRING, amount DOUBLE")
def paid_orders(rows: DataFrame) -> DataFrame:
    return rows.where("amount > 0").selectExpr("*", "upper(city) AS region")


@tm.row_asset(source=ORDERS)
def all_rows(rows: DataFrame) -> DataFrame:
    return rows


def rows_by_condition() -> DerivedSource:
    @tm.row_asset(source=ORDERS)
    def known_rows(rows: DataFrame) -> DataFrame:
        return rows.where("city IS NOT NULL")

    return known_rows


DERIVED: Mapping[str, tuple[str, DerivedSource, str]] = {
    "join": (
        "{join: {left: orders, right: payments, on: [id], within: [-5 minutes, 1 hour], "
        'how: left, allowed_lateness: 1 hour, where: "l.amount >= r.paid"}}',
        tm.join(
            name="joined",
            left=ORDERS,
            right=PAYMENTS,
            on=["id"],
            within=tm.Between("-5 minutes", "1 hour"),
            how="left",
            allowed_lateness="1 hour",
            where="l.amount >= r.paid",
            rename=RENAMED,
        ),
        "paid",
    ),
    "as-of join": (
        "{as_of: {left: orders, right: payments, on: [id], how: left}}",
        tm.asof_join(
            name="joined", left=ORDERS, right=PAYMENTS, on=["id"], how="left", rename=RENAMED
        ),
        "paid",
    ),
    "union": (
        "{union: {of: [orders, payments]}}",
        tm.union(name="joined", of=[ORDERS, PAYMENTS]),
        "amount",
    ),
    "chain": (
        "{chain: {source: orders, asset: city_hours, transform: {window: {tumbling: {size: 1 h}}, "
        "keys: [city], aggregates: {revenue: {sum: amount}}}}}",
        tm.chain(name="joined", of=city_hours),
        "revenue",
    ),
    "row asset": (
        '{rows: {source: orders, where: "AMOUNT  > 0", computed: {region: upper(city)}, '
        "columns: {at: timestamp, region: string, amount: double}}}",
        paid_orders,
        "amount",
    ),
    "row asset by a condition": (
        "{rows: {source: orders, where: city IS NOT NULL}}",
        rows_by_condition(),
        "amount",
    ),
    "row asset without a function": ("{rows: {source: orders}}", all_rows, "amount"),
}
"""Derived sources in YAML and in Python, with a column of each."""


def read(text: str) -> Definitions:
    component = WindowedAsset(name="x", sources={}, transform={}, partitions_def=DAYS)
    return component.read(_read_nodes(Path("defs.yaml"), text, 0))


@pytest.mark.parametrize("form", DERIVED)
def test_a_derived_source_is_the_same_in_yaml(form: str) -> None:
    text, in_python, value = DERIVED[form]
    definitions = read(
        f"{SOURCES}derived:\n  {in_python.name}: {text}\n"
        f"transform: {{source: {in_python.name}, window: {{tumbling: {{size: 1 day}}}}, "
        f"allowed_lateness: 1 hour, aggregates: {{number: count, total: {{sum: {value}}}}}}}\n"
    )
    in_yaml = definitions.derived[in_python.name]
    assert in_yaml.columns == in_python.columns
    assert in_yaml.event_time == in_python.event_time
    assert derivation_fingerprint(in_yaml) == derivation_fingerprint(in_python)
    windows = in_joined_hours(in_python, value)
    assert definitions.transform is not None
    assert compute_fingerprint(definitions.transform) == compute_fingerprint(windows)
    base = in_yaml.derivation.asset
    if base is not None:
        assert compute_fingerprint(base) == compute_fingerprint(city_hours)


CONNECTORS: Mapping[str, tuple[str, object]] = {
    "files": (
        "{files: {format: csv, options: {header: true, sep: ;}, names: ['a*.csv', 'b*.csv']}}",
        FileConnector(
            ORDERS,
            "place",
            format="csv",
            options={"header": True, "sep": ";"},
            names=["a*.csv", "b*.csv"],
        ),
    ),
    "kafka": ("{kafka: {topics: [orders]}}", KafkaConnector(ORDERS, ["orders"])),
    "kafka with options": (
        "{kafka: {topics: [^orders_.*], start: 2026-01-01T00:00:00Z, servers: 'a:1,b:2', "
        "format: {json: {by_id: true, options: {timeZone: UTC}}}, correlation: id, rows: 100, "
        "client: {sasl.username: me, sasl.password: {secret: 'env:PASSWORD'}}, "
        "accept_loss: true}}",
        KafkaConnector(
            ORDERS,
            ["^orders_.*"],
            start="2026-01-01T00:00:00Z",
            servers="a:1,b:2",
            format=Json(by_id=True, options={"timeZone": "UTC"}),
            correlation="id",
            rows=100,
            client={"sasl.username": "me", "sasl.password": tm.secret("env:PASSWORD")},
            accept_loss=True,
        ),
    ),
    "delta": ("{delta: {path: /lake/orders}}", DeltaConnector(ORDERS, "/lake/orders")),
    "snapshot of a table": (
        "{delta: {path: /lake/orders, start: 12, change_feed: true, time_zone: Europe/Paris}}",
        DeltaConnector(
            ORDERS, "/lake/orders", start=12, change_feed=True, time_zone="Europe/Paris"
        ),
    ),
}


@pytest.mark.parametrize("form", CONNECTORS)
def test_a_connector_is_the_same_in_yaml(form: str) -> None:
    text, in_python = CONNECTORS[form]
    node = _read_nodes(Path("defs.yaml"), f"connectors: {text}", 0)["connectors"]
    ingestion = read_ingestion(ORDERS, node)
    assert ingestion.source is ORDERS
    assert ingestion.connector("place") == in_python


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{mqtt: {}}", "x.yaml:1: 'mqtt' is not a connector; allowed: files, kafka, delta."),
        ("{kafka: {}}", "x.yaml:1: a connector of kafka needs 'topics'; allowed: topics, start,"),
        ("{kafka: {topics: [a], row: 1}}", "'row' is not part of a connector of kafka; allowed:"),
        ("{kafka: {topics: [a], format: csv}}", "'csv' is not a format; allowed: json."),
        ("{kafka: {topics: [a], format: {xml: {}}}}", "'xml' is not a format; allowed: json, avro"),
        ("{kafka: {topics: [a], rows: 0}}", "needs `rows` of at least 1"),
        ("{kafka: {topics: [a], client: {x: {secret: y}}}}", "x.yaml:1: "),
        ("{kafka: {topics: [a], format: {avro: {schema: no.avsc}}}}", "x.yaml:1: "),
        ("{delta: {path: a, start: -1}}", "'start' must be an integer of at least 0 (got '-1')."),
        ("{delta: {path: a, change_feed: 1}}", "'change_feed' must be true or false (got '1')."),
        ("{files: {format: xml}}", "'xml' is not a format; allowed: csv, json, parquet."),
        ("{files: {format: csv, options: {quote: a}}}", "quote"),
    ],
)
def test_a_mistake_in_a_connector_is_named(text: str, message: str) -> None:
    node = _read_nodes(Path("x.yaml"), f"connectors: {text}", 0)["connectors"]
    with pytest.raises(tm.DefinitionError) as refused:
        read_ingestion(ORDERS, node)
    assert message in str(refused.value)
    assert str(refused.value).startswith("x.yaml:1: ")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("where: amont > 0", "x.yaml:14: line 1, column 1: 'amont' is not a column of source 'or"),
        ("where: sum(amount) > 0", "the aggregate sum can't be used within an expression"),
        ("computed: {city: upper(city)}", "x.yaml:14: 'city' is already a column of source 'ord"),
        ("computed: {region: upper(city)}", "the computed column 'region' needs a type: add 'col"),
        ("columns: {at: timestamp, town: string}", "'town' is neither computed nor a column of s"),
        ("filter: true", "'filter' is not part of a row asset; allowed: source, where, computed,"),
    ],
)
def test_a_mistake_in_a_row_asset_is_named(rows: str, message: str) -> None:
    text = f"{SOURCES}derived:\n  silver:\n    rows:\n      source: orders\n      {rows}\n"
    nodes = _read_nodes(Path("x.yaml"), text + "transform: {}\n", 0)
    component = WindowedAsset(name="x", sources={}, transform={}, partitions_def=DAYS)
    with pytest.raises(tm.DefinitionError) as refused:
        component.read(nodes)
    assert message in str(refused.value)


def test_the_page_has_a_table_of_cleaned_rows() -> None:
    [page] = [text for _, _, text in blocks("docs/dagster.md") if "dagster.EventLogs" in text[:40]]
    assets = load({"paid_orders": yaml.safe_load(page)})
    assert assets.keys() == {"orders_log", "paid_orders_log"}


def load(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dg.AssetsDefinition]:
    """Load components from their types and attributes. Return the assets by their keys."""
    with create_defs_folder_sandbox() as sandbox:
        for name, content in files.items():
            file = sandbox.defs_folder_path / name / "defs.yaml"
            file.parent.mkdir()
            file.write_text(yaml.safe_dump(content))
        with sandbox.build_all_defs() as definitions:
            assets = definitions.resolve_asset_graph().assets_defs
    return {asset.key.to_user_string(): asset for asset in assets if asset.is_executable}


def test_event_logs_need_no_windows() -> None:
    derived = {"silver": {"rows": {"source": "orders", "where": "amount > 0"}}}
    derived |= {"both": {"union": {"of": ["orders", "payments"]}}}
    attributes = {
        **yaml.safe_load(SOURCES),
        "derived": derived,
        "connectors": {"orders": {"kafka": {"topics": ["orders"]}}},
    }
    content = {"type": "tidemark.dagster.EventLogs", "attributes": attributes}
    assets = load({"logs": content})
    assert assets.keys() == {"orders_log", "silver_log", "both_log"}
    in_python = dagster_asset(tm.union(name="both", of=[ORDERS, PAYMENTS])).get_asset_spec()
    in_yaml = assets["both_log"].get_asset_spec()
    assert in_yaml.code_version == in_python.code_version
    assert in_yaml.deps == in_python.deps


def test_the_base_of_a_chain_is_an_asset_too() -> None:
    windows = {"window": {"tumbling": {"size": "1 hour"}}, "aggregates": {"number": "count"}}
    daily = {"window": {"tumbling": {"size": "1 day"}}, "aggregates": {"total": {"sum": "number"}}}
    attributes = {
        "name": "daily",
        **yaml.safe_load(SOURCES),
        "derived": {"hours": {"chain": {"source": "orders", "transform": windows}}},
        "transform": {"source": "hours", **daily},
        "partitions_def": {"type": "daily", "start_date": "2026-01-01"},
    }
    assets = load({"daily": {"type": "tidemark.dagster.WindowedAsset", "attributes": attributes}})
    assert assets.keys() == {"hours_windows", "hours_log", "daily"}
    [base] = assets["hours_log"].get_asset_spec().deps
    assert base.asset_key == dg.AssetKey("hours_windows")
    logs = {name: attributes[name] for name in ("sources", "derived")}
    content = {"type": "tidemark.dagster.EventLogs", "attributes": logs}
    with pytest.raises(Exception, match="Error while building") as refused:
        load({"logs": content})
    error: BaseException = refused.value
    while error.__cause__ is not None:
        error = error.__cause__
    assert "'hours' is a chain, whose windows need partitions: define it in" in str(error)


@pytest.mark.parametrize("connector", ["files", "kafka", "delta"])
@pytest.mark.parametrize("over", ["events", "rows", "union", "join", "as_of", "chain"])
def test_a_scaffolded_file_can_be_loaded(over: str, connector: str) -> None:
    params = {"over": over, "connector": connector}
    for component in (WindowedAsset, EventLogs):
        if component is EventLogs and over == "chain":
            continue
        with create_defs_folder_sandbox() as sandbox:
            sandbox.scaffold_component(
                component_cls=component, defs_path="first", scaffold_params=params
            )
            with sandbox.build_all_defs() as definitions:
                keys = definitions.resolve_asset_graph().materializable_asset_keys
        names = {key.to_user_string() for key in keys}
        assert "events_log" in names
        assert ("first" in names) == (component is WindowedAsset)
        assert ("more_events_log" in names) == (over in ("union", "join", "as_of"))
