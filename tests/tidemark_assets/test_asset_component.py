"""Test windowed assets in YAML: they are the assets of the same definitions in Python."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import DataFrame

import tidemark as tm
import tidemark_streaming.starter as starter
from helpers.dagster.dagsters import dagsters_own, of_dagster
from helpers.suite.pages import blocks
from tidemark.base.settings import Settings
from tidemark.dagster import TidemarkAsset, WindowedAsset, dagster_asset
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.transform import WindowedTransform
from tidemark_assets.asset_component import _read_nodes

[PAGE] = [text for _, _, text in blocks("docs/dagster.md") if "tidemark.dagster.Win" in text[:40]]
"""The complete file of the page."""

# Dagster itself uses what Pydantic and Dagster no longer recommend, or not yet.
pytestmark = pytest.mark.filterwarnings("ignore")

HOURLY = dg.AssetKey("orders_hourly")


@contextmanager
def loaded(text: str) -> Iterator[dg.Definitions]:
    """Load a component from its YAML file, in a folder of definitions."""
    with create_defs_folder_sandbox() as sandbox:
        file = sandbox.defs_folder_path / "orders_hourly" / "defs.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        with sandbox.build_all_defs() as definitions:
            yield definitions


def assets(definitions: dg.Definitions) -> dict[str, dg.AssetsDefinition]:
    found = definitions.resolve_asset_graph().assets_defs
    return {asset.key.to_user_string(): asset for asset in found if asset.is_executable}


def refusal(text: str) -> str:
    """Return the message with which a component is refused."""
    with pytest.raises(Exception, match="orders_hourly") as refused, loaded(text):
        pass
    error: BaseException = refused.value
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


def in_python() -> TidemarkAsset:
    """Return the asset of the page in Python."""
    orders = tm.Source(
        name="orders",
        columns={"ordered_at": "TIMESTAMP", "city": "STRING", "amount": "DOUBLE"},
        event_time="ordered_at",
        watermark=tm.BoundedOutOfOrderness("10 minutes"),
    )

    @dagster_asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    @tm.windowed_asset(
        source=orders,
        keys=["city"],
        window=tm.Tumbling("1 hour"),
        allowed_lateness="1 hour",
        aggregates={"orders": tm.agg.count(), "revenue": tm.agg.sum("amount")},
    )
    def orders_hourly(rows: DataFrame) -> DataFrame:
        """Number and sum of orders, by city and hour."""
        return rows

    return orders_hourly


def test_yaml_and_python_give_the_same_asset() -> None:
    python = in_python()
    with loaded(PAGE) as definitions:
        in_yaml = assets(definitions)["orders_hourly"].get_asset_spec()
        assert {"orders_log", "orders_hourly"} == assets(definitions).keys()
    own = python.get_asset_spec()
    assert in_yaml.code_version == own.code_version == compute_fingerprint(python.definition)
    assert in_yaml.description == own.description
    assert in_yaml.deps == own.deps
    assert in_yaml.partitions_def == own.partitions_def
    assert in_yaml.tags == own.tags
    places = ("dagster/code_references", "dagster/component_origin")
    for name, value in own.metadata.items():
        if name not in places:
            assert in_yaml.metadata[name] == value, name


def test_yaml_and_python_give_the_same_definition() -> None:
    """Functions can't be compared by `==`, but the fingerprint compares them."""
    python = in_python().definition
    component = WindowedAsset(
        name=python.name,
        description=python.description,
        sources={},
        transform={},
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    )
    in_yaml = component.read(_read_nodes(Path("defs.yaml"), PAGE, 0, "attributes")).transform
    assert isinstance(in_yaml, WindowedTransform)
    assert isinstance(python, WindowedTransform)
    assert compute_fingerprint(in_yaml) == compute_fingerprint(python)
    kinds = {name: kind.upper() for name, kind in in_yaml.source.columns.items()}
    same_source = replace(in_yaml.source, columns=kinds)
    functions = {"function": python.function, "aggregates": python.aggregates}
    assert replace(in_yaml, source=same_source, **functions) == python


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "tumbling:",
            "tumbled:",
            "defs.yaml:17: 'tumbled' is not a window; allowed: tumbling, sliding, cumulating, "
            "session, calendar, global.",
        ),
        ("source: orders", "source: order", "defs.yaml:15: 'order' is not a source; allowed: ord"),
        ("{sum: amount}", "{sum: price}", "defs.yaml:19: 'price' is not a column of the source;"),
        ("format: csv", "format: tsv", "defs.yaml:13: 'tsv' is not a format; allowed: csv, json"),
        ("header: true", "heading: true", "defs.yaml:13: "),
        (
            "files:",
            "mails:",
            "defs.yaml:13: 'mails' is not a connector; allowed: files, kafka, delta.",
        ),
        ("    orders:\n      files", "    visits:\n      files", "defs.yaml:12: 'visits' is not a"),
    ],
)
def test_a_mistake_is_named_with_its_line(before: str, after: str, message: str) -> None:
    assert before in PAGE
    assert message in refusal(PAGE.replace(before, after, 1))


def test_a_source_without_a_connector_has_its_log_elsewhere() -> None:
    without = PAGE.replace("  connectors:\n", "").replace("    orders:\n      files: ", "#")
    with loaded(without) as definitions:
        assert assets(definitions).keys() == {"orders_hourly"}
        graph = definitions.resolve_asset_graph()
        assert graph.get(HOURLY).parent_keys == {dg.AssetKey("orders_log")}


def test_a_file_may_have_several_assets_over_one_source() -> None:
    second = PAGE.replace("name: orders_hourly", "name: orders_daily").replace("1 hour}", "1 day}")
    begin, end = second.index("  connectors:"), second.index("  transform:")
    with loaded(f"{PAGE}---\n{second[:begin]}{second[end:]}") as definitions:
        assert assets(definitions).keys() == {"orders_log", "orders_hourly", "orders_daily"}
    mistaken = second.replace("tumbling", "tumbled")
    assert f"defs.yaml:{17 + PAGE.count(chr(10)) + 1}: 'tumbled'" in refusal(
        f"{PAGE}---\n{mistaken}"
    )


def test_a_component_in_python_is_the_same() -> None:
    attributes = yaml.safe_load(PAGE)["attributes"]
    del attributes["partitions_def"]
    text = f"""\
import dagster as dg
from tidemark.dagster import WindowedAsset


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> WindowedAsset:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    return WindowedAsset(partitions_def=days, **{attributes!r})
"""
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "orders.py").write_text(text)
        with sandbox.build_all_defs() as definitions:
            spec = assets(definitions)["orders_hourly"].get_asset_spec()
    assert spec.code_version == compute_fingerprint(in_python().definition)


def test_a_joined_source_is_an_asset_too() -> None:
    derived = "  derived:\n    all_orders: {union: {of: [orders, more]}}\n  transform:\n"
    more = PAGE[PAGE.index("    orders:\n      event_time") : PAGE.index("  connectors:")]
    more = more.replace("orders:", "more:") + "  connectors:\n"
    text = PAGE.replace("  connectors:\n", more).replace("  transform:\n", derived)
    with loaded(text.replace("source: orders", "source: all_orders")) as definitions:
        found = assets(definitions)
        assert found.keys() == {"orders_log", "all_orders_log", "orders_hourly"}
        [dep] = found["orders_hourly"].get_asset_spec().deps
        assert dep.asset_key == dg.AssetKey("all_orders_log")


@pytest.mark.slow
def test_dg_scaffolds_a_file_that_can_be_loaded(tmp_path: Path) -> None:
    env = of_dagster(tmp_path / "surroundings")
    new = ("create-dagster", "project", "my-project", "--no-uv-sync")
    dagsters_own(*new, place=tmp_path, env=env)
    project = tmp_path / "my-project"
    env |= {"PYTHONPATH": str(project / "src"), "TIDEMARK_HOME": str(project / "home")}

    def dg_says(*arguments: str) -> str:
        return dagsters_own("dg", *arguments, place=project, env=env)

    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text()
    scaffold = "dg scaffold defs tidemark.dagster.WindowedAsset "
    commands = [part for part in page.split("`") if part.startswith(scaffold)]
    assert len(commands) > 1
    for command in commands:
        dg_says(*command.split()[1:])
    dg_says("scaffold", "defs", "tidemark.dagster.EventLogs", "silver", "--source", "raw")
    dg_says("scaffold", "defs", "tidemark.dagster.WindowedAsset", "visits", "--source", "visits")
    assert "All component YAML validated successfully." in dg_says("check", "yaml")
    assert "All definitions loaded successfully." in dg_says("check", "defs")


def test_a_component_runs(
    engine: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instance: dg.DagsterInstance,
) -> None:
    shutil.copytree(Path(starter.__file__).parent / "files" / "landing", tmp_path / "landing")
    monkeypatch.setenv("TIDEMARK_HOME", str(engine.home))
    monkeypatch.setenv("TIDEMARK_ENGINE_PORT", str(engine.engine_port))
    monkeypatch.setenv("TIDEMARK_DATABASE", f"test_{uuid4().hex[:12]}")
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    with loaded(PAGE) as definitions:
        job = definitions.resolve_implicit_global_asset_job_def()
        for asset, day in (("orders_log", None), ("orders_hourly", "2026-01-01")):
            key = [dg.AssetKey(asset)]
            assert job.execute_in_process(
                asset_selection=key, instance=instance, partition_key=day
            ).success
    rows = tm.read("orders_hourly").to_pyarrow_table().to_pylist()
    assert {"york", "leeds"} <= {row["city"] for row in rows}
    assert all(row["orders"] > 0 for row in rows)
