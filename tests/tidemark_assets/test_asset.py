"""Test windowed assets in a user's own file: they are Dagster assets like any other."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import dagster as dg
import pytest
from dagster_shared.check import CheckError
from pyspark.sql import SparkSession

import tidemark as tm
import tidemark_streaming.starter as starter
from helpers.dagster.dagsters import dagsters_own, of_dagster
from helpers.data.support import PER_MINUTE, READINGS
from helpers.suite.pages import blocks
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.connectors import FileConnector, Ingestion
from tidemark.dagster import dagster_asset
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.definitions import build_definitions
from tidemark_assets.weather.definitions import presentation
from tidemark_assets.weather.transforms import weather_days

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
[OWN_FILE] = [
    text for _, _, text in blocks("docs/dagster.md") if "dagster_asset(connector)" in text
]
"""The complete file of the page."""

DAY = "2026-01-01"


def keys(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the page's file as a module, in a folder with files for its source."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    name = f"own_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(OWN_FILE)
    shutil.copytree(Path(starter.__file__).parent / "files" / "landing", tmp_path / "landing")
    yield __import__(name)
    del sys.modules[name]


def test_a_file_with_windows_has_assets_checks_and_lineage(own_file: ModuleType) -> None:
    defs: dg.Definitions = own_file.defs
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    hourly = graph.get(dg.AssetKey("orders_hourly"))
    assert hourly.description == "Number and sum of orders, by city and hour."
    assert hourly.partitions_def == own_file.days
    assert hourly.parent_keys == {dg.AssetKey("orders_log")}
    assert graph.get(dg.AssetKey("orders_log")).parent_keys == {dg.AssetKey("orders_connector")}
    columns = hourly.metadata["dagster/column_schema"].columns
    assert {"window_start", "city", "orders", "revenue"} <= {column.name for column in columns}
    assert {key.name for key in hourly.check_keys} == {
        "matches_log",
        "between_revenue_min_value_0",
        "values_fit",
    }


def test_the_assets_are_those_of_a_domain() -> None:
    """The asset in a file has the same step, checks and metadata as the one of a domain."""
    domain = build_definitions(["tidemark_assets.weather"], {"tidemark": None})
    [windows] = [
        asset
        for asset in domain.assets or []
        if isinstance(asset, dg.AssetsDefinition) and dg.AssetKey("weather_days") in asset.keys
    ]
    own = dagster_asset(
        weather_days,
        partitions_def=presentation.partitions_of("weather_days"),
        group_name="weather",
        owners=presentation.owners,
    )
    assert own.get_asset_spec() == windows.get_asset_spec()
    assert [*own.check_specs] == [*windows.check_specs]


def test_dagster_finds_the_assets_of_a_module(own_file: ModuleType) -> None:
    assets = dg.load_assets_from_modules([own_file], group_name="shop", key_prefix=["eu"])
    found = keys(dg.Definitions(assets=assets))
    assert {"eu/orders_log", "eu/orders_hourly", "eu/best_city"} <= found


def test_definitions_merge_with_an_executor_and_resources_of_the_user(
    own_file: ModuleType,
) -> None:
    own = dg.Definitions(
        executor=dg.multiprocess_executor,
        resources={"tidemark": dg.ResourceDefinition.hardcoded_resource(1)},
    )
    merged = dg.Definitions.merge(own_file.defs, own)
    dg.Definitions.validate_loadable(merged)
    assert merged.executor is dg.multiprocess_executor
    assert own_file.defs.resources in (None, {})


@pytest.mark.slow
def test_dg_checks_and_lists_a_file_of_a_project(tmp_path: Path) -> None:
    """A file under `defs/` of a project by Dagster's scaffold is loaded next to its own assets."""
    env = of_dagster(tmp_path / "surroundings")
    new = ("create-dagster", "project", "my-project", "--no-uv-sync")
    dagsters_own(*new, place=tmp_path, env=env)
    project = tmp_path / "my-project"
    defs = project / "src" / "my_project" / "defs"
    (defs / "orders.py").write_text(OWN_FILE)
    (defs / "own.py").write_text(
        "import dagster as dg\n\n\n@dg.asset(deps=['orders_hourly'])\ndef report(): ...\n\n\n"
        "defs = dg.Definitions(assets=[report], executor=dg.multiprocess_executor)\n"
    )
    env |= {"PYTHONPATH": str(project / "src"), "TIDEMARK_HOME": str(project / "home")}

    def dg_says(*arguments: str) -> str:
        return dagsters_own("dg", *arguments, place=project, env=env)

    assert "All definitions loaded successfully." in dg_says("check", "defs")
    listed = json.loads(dg_says("list", "defs", "--json"))
    found = {asset["asset_key"] for asset in listed["assets"]}
    assert found >= {"orders_log", "orders_hourly", "best_city", "report"}
    checks = {(check["asset_key"], check["name"]) for check in listed["asset_checks"]}
    assert ("orders_hourly", "matches_log") in checks
    assert listed["jobs"] == listed["sensors"] == listed["schedules"] == []


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        (None, r"asset 'per_minute' must be time windows, such as dg.DailyPart.* \(got None\)"),
        (dg.StaticPartitionsDefinition(["a"]), "asset 'per_minute' must be time windows, such as"),
        (
            dg.DailyPartitionsDefinition("2026-01-01", exclusions=["0 0 * * 1"]),
            "asset 'per_minute' have exclusions",
        ),
    ],
)
def test_partitions_that_are_not_time_windows_are_refused(
    partitions: dg.PartitionsDefinition, message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        dagster_asset(PER_MINUTE, partitions_def=partitions)


def test_an_event_log_has_no_partitions() -> None:
    ingestion = Ingestion(READINGS, lambda landing: FileConnector(READINGS, landing))
    with pytest.raises(DefinitionError, match=r"'readings_log' has no partitions.*: remove part"):
        dagster_asset(ingestion, partitions_def=DAYS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DefinitionError, match="has no definition of windows"):
        _ = dagster_asset(ingestion).definition


def test_what_is_not_a_definition_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"dagster_asset: definition must be .*\(got "):
        dagster_asset(READINGS, partitions_def=DAYS)  # pyright: ignore[reportArgumentType]


def test_dagster_refuses_a_plain_definition_in_one_short_message() -> None:
    with pytest.raises(CheckError) as refused:
        dg.Definitions(assets=[PER_MINUTE])  # pyright: ignore[reportArgumentType]
    assert (
        "Got <WindowedTransform 'per_minute': for Dagster, use "
        "tidemark.dagster.dagster_asset(per_minute, partitions_def=…)>"
    ) in str(refused.value)


def test_a_roll_up_and_a_derived_source_are_assets_too() -> None:
    hourly = dagster_asset(
        tm.rollup(of=PER_MINUTE, name="hourly", window=tm.Tumbling("1 hour")), partitions_def=DAYS
    )
    minutes = dagster_asset(partitions_def=DAYS)(PER_MINUTE)
    chained = dagster_asset(
        tm.chain(
            of=minutes.definition,
            name="chained",
            rows="final",
            types={"total": "DOUBLE", "sensor": "STRING"},
        )
    )
    graph = dg.Definitions(assets=[hourly, minutes, chained]).resolve_asset_graph()
    assert graph.get(dg.AssetKey("hourly")).parent_keys == {dg.AssetKey("per_minute")}
    assert graph.get(dg.AssetKey("chained_log")).parent_keys == {dg.AssetKey("per_minute")}


def test_a_file_with_windows_runs(
    own_file: ModuleType,
    engine: Settings,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instance: dg.DagsterInstance,
) -> None:
    """The assets ingest and compute like those of a domain, also under another prefix."""
    settings = engine.model_copy(
        update={"database": f"test_{uuid4().hex[:12]}", "landing": str(tmp_path / "landing")}
    )
    for name in ("home", "database", "landing", "engine_port"):
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", str(getattr(settings, name)))
    prefixed = dg.load_assets_from_modules([own_file], key_prefix="eu")

    def run(definitions: dg.Definitions, *assets: str, day: str | None = None) -> None:
        job = definitions.resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey.from_user_string(asset) for asset in assets]
        done = job.execute_in_process(
            asset_selection=selection, instance=instance, partition_key=day
        )
        assert done.success
        evaluations = {e.check_name: e.passed for e in done.get_asset_check_evaluations()}
        assert all(evaluations.values()), evaluations
        seen.append((done, evaluations))

    seen: list[tuple[dg.ExecuteInProcessResult, dict[str, bool]]] = []
    run(own_file.defs, "orders_log")
    run(own_file.defs, "orders_hourly", "best_city", day=DAY)
    done, evaluations = seen[-1]
    assert {"matches_log", "between_revenue_min_value_0"} <= evaluations.keys()
    [event] = done.asset_materializations_for_node("best_city")
    assert event.metadata["city"].value == "york"
    warehouse = Warehouse.of_project(settings, spark)
    assert check_parity(warehouse, own_file.orders_hourly.definition).is_equal
    run(dg.Definitions(assets=prefixed), "eu/orders_hourly", "eu/best_city", day=DAY)
    done, evaluations = seen[-1]
    assert {"matches_log", "between_revenue_min_value_0"} <= evaluations.keys()
    [event] = done.asset_materializations_for_node("best_city")
    assert event.metadata["city"].value == "york"
    assert instance.get_latest_materialization_event(dg.AssetKey(["eu", "orders_hourly"]))
