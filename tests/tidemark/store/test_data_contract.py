"""Test data contracts: they fit the standard's own schema, and state what definitions state."""

import datetime
import json
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

import tidemark as tm
from helpers.data.support import MINUTE, PER_MINUTE, READINGS
from helpers.processes.commands import call
from tidemark.base.settings import RECORDED
from tidemark.define.contract.document import describe_contract
from tidemark.define.window_columns import published_columns
from tidemark_streaming.home.domains import load_domains

SCHEMA = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
DOMAINS = [*RECORDED, "till", "kiosk", "gated", "numbered"]


def contract_of(asset: tm.Definition, *owners: str, settings: tm.Settings) -> dict[str, Any]:
    """Return an asset's contract, which the standard's schema accepts."""
    contract = yaml.safe_load(tm.export_contract(asset, owners=owners, settings=settings))
    jsonschema.validate(contract, SCHEMA, jsonschema.Draft201909Validator)
    return contract


def by_name(nodes: Iterable[dict[str, Any]], name: str = "name") -> dict[str, Any]:
    return {node[name]: node for node in nodes}


@pytest.fixture
def settings(tmp_path: Path) -> tm.Settings:
    return tm.Settings(home=tmp_path, database="db")


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_contracts_of_all_sample_assets_fit_the_standard(
    domain: str, settings: tm.Settings
) -> None:
    assets = load_domains([domain]).transforms
    assert assets
    for asset in assets.values():
        contract = contract_of(asset, "team:shop", "a@b.example", settings=settings)
        assert contract["id"] == f"db.{asset.name}"
        (table,) = contract["schema"]
        assert [column["name"] for column in table["properties"]] == [*published_columns(asset)]
        keys = [column["name"] for column in table["properties"] if column.get("primaryKey")]
        assert sorted(keys) == sorted(asset.by_window)
        rules = list[dict[str, Any]](table["quality"])
        for column in table["properties"]:
            rules += column.get("quality", [])
        stated = {rule["name"]: rule["severity"] for rule in rules[1:]}
        assert stated == {e.name: e.level for e in asset.all_expectations}


def test_a_contract_without_a_required_field_is_refused() -> None:
    contract = describe_contract(PER_MINUTE, "db", "/tables/per_minute", {}, [])
    jsonschema.validate(contract, SCHEMA, jsonschema.Draft201909Validator)
    del contract["servers"][0]["path"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(contract, SCHEMA, jsonschema.Draft201909Validator)


def test_types_come_from_the_table_and_else_from_the_definition(settings: tm.Settings) -> None:
    before = by_name(contract_of(PER_MINUTE, settings=settings)["schema"][0]["properties"])
    assert before["window_start"]["logicalType"] == "timestamp"
    assert before["n"]["physicalType"] == "bigint"
    assert "physicalType" not in before["total"]
    columns = {
        "total": pa.array([Decimal("1.50")], pa.decimal128(20, 2)),
        "average": pa.array([1.5]),
        "least": pa.array([b"x"]),
        "most": pa.array([[1]], pa.list_(pa.int32())),
        "high": pa.array([{"x": 1}], pa.struct({"x": pa.int64()})),
        "no_longer_defined": pa.array([1]),
    }
    folder = f"{settings.warehouse}/db/{PER_MINUTE.published_table}"
    write_deltalake(folder, pa.table(columns))
    after = by_name(contract_of(PER_MINUTE, settings=settings)["schema"][0]["properties"])
    types = {
        name: (after[name].get("logicalType"), after[name]["physicalType"])
        for name in columns
        if name in after
    }
    assert types == {
        "total": ("number", "decimal(20,2)"),
        "average": ("number", "double"),
        "least": (None, "binary"),
        "most": ("array", "array<int>"),
        "high": ("object", "struct<x:bigint>"),
    }
    assert after["sensor"] == before["sensor"]


def test_expectations_are_rules_of_their_columns_or_of_the_table(
    settings: tm.Settings,
    gxe: Any,  # noqa: ANN401
) -> None:
    asset = replace(
        PER_MINUTE,
        expectations=(
            tm.expect.not_null("sensor"),
            tm.expect.one_of("sensor", ["a", datetime.date(2026, 1, 31)], level="warning"),
            tm.expect.one_of("n", [1, 2], mostly=0.5),
            tm.expect.between("total", Decimal("0.10"), description="No negative price."),
            tm.expect.column_greater("most", "least"),
            gxe.ExpectTableRowCountToBeBetween(min_value=1, severity="info"),
            tm.expect.matches_log(),
        ),
    )
    (table,) = contract_of(asset, settings=settings)["schema"]
    columns = by_name(table["properties"])
    not_null, one_of = columns["sensor"]["quality"]
    assert (not_null["metric"], not_null["mustBe"]) == ("nullValues", 0)
    assert (one_of["metric"], one_of["severity"]) == ("invalidValues", "warning")
    assert one_of["arguments"] == {"validValues": ["a", "2026-01-31"]}
    # The standard's metrics count all rows: an expectation on a part of them is not such a metric.
    (some,) = columns["n"]["quality"]
    assert some["implementation"]["type"] == "expect_column_values_to_be_in_set"
    assert some["implementation"]["kwargs"]["mostly"] == 0.5
    (between,) = columns["total"]["quality"]
    assert between["description"] == "No negative price. Expects at least 0.10."
    assert between["implementation"]["kwargs"] == {"column": "total", "min_value": "0.10"}
    one_row, *of_table = table["quality"]
    assert one_row["metric"] == "duplicateValues"
    assert one_row["arguments"] == {"properties": ["window_start", "window_end", "sensor"]}
    assert [rule["implementation"] for rule in of_table] == [
        {
            "type": "expect_column_pair_values_a_to_be_greater_than_b",
            "kwargs": {
                "column_A": "most",
                "column_B": "least",
                "ignore_row_if": "either_value_is_missing",
            },
        },
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
        "matches_log()",
        # `total` can exceed its type.
        "values_fit()",
    ]


def test_lateness_is_stated_in_seconds_of_event_time(settings: tm.Settings) -> None:
    levels = by_name(contract_of(PER_MINUTE, settings=settings)["slaProperties"], "property")
    values = {name: (level["value"], level["unit"]) for name, level in levels.items()}
    assert values == {"frequency": (60, "s"), "latency": (60, "s"), "allowedLateness": (120, "s")}
    # A session ends after a gap of its key, and a punctuated watermark states no delay.
    marked = replace(READINGS, watermark=tm.Punctuated("ts"))
    session = replace(
        PER_MINUTE,
        source=marked,
        window=tm.Session("1 minute"),
        allowed_lateness=MINUTE // 120,
    )
    levels = by_name(contract_of(session, settings=settings)["slaProperties"], "property")
    assert {name: level["value"] for name, level in levels.items()} == {"allowedLateness": 0.5}


@pytest.mark.parametrize(
    ("path", "server"),
    [
        ("/data/t", {"type": "local", "path": "/data/t"}),
        ("s3a://bucket/t", {"type": "s3", "location": "s3://bucket/t"}),
        ("s3://bucket/t", {"type": "s3", "location": "s3://bucket/t"}),
        ("abfss://c@a.dfs/t", {"type": "azure", "location": "abfss://c@a.dfs/t"}),
        ("gs://bucket/t", {"type": "custom", "location": "gs://bucket/t"}),
    ],
)
def test_the_server_is_the_folder_of_the_table(path: str, server: dict[str, str]) -> None:
    contract = describe_contract(PER_MINUTE, "db", path, published_columns(PER_MINUTE), [])
    assert contract["servers"] == [{"server": "db", "format": "delta", **server}]
    jsonschema.validate(contract, SCHEMA, jsonschema.Draft201909Validator)
    assert "team" not in contract


def test_the_version_changes_with_the_definition(settings: tm.Settings) -> None:
    version = contract_of(PER_MINUTE, settings=settings)["version"]
    other = replace(PER_MINUTE, window=tm.Tumbling("5 minutes"))
    assert (
        contract_of(replace(PER_MINUTE, description="x"), settings=settings)["version"] == version
    )
    assert contract_of(other, settings=settings)["version"] != version


def test_the_command_prints_the_contract_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", "gated,till")
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    said = call("show", "gated", "--contract", "--owner", "team:a", "--owner", "b@c.example")
    contract = yaml.safe_load(said.stdout)
    jsonschema.validate(contract, SCHEMA, jsonschema.Draft201909Validator)
    owners = [member["username"] for member in contract["team"]["members"]]
    assert owners == ["team:a", "b@c.example"]
    assert said.stderr == ""
    refused = {
        ("orders", "--contract"): "is a source: --contract describes the windows",
        ("gated", "--contract", "--late"): "without options that choose rows",
        ("gated", "--contract", "--key", "sensor=a"): "without options that choose rows",
        ("gated", "--owner", "team:a"): "add --contract",
        ("gates", "--contract"): "There is no asset or source 'gates'",
    }
    for arguments, message in refused.items():
        result = call("show", *arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
