"""Test an existing Dagster project, made by Dagster's scaffold.

It has Tidemark components and assets of its own downstream of them.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
from pyspark.sql import SparkSession

import tidemark_streaming.starter as starter
from helpers.dagster.dagsters import dagsters_own, of_dagster
from helpers.dagster.steps import OnTestSession
from helpers.suite.pages import blocks
from tidemark.base.settings import Settings
from tidemark_assets.metadata.describe import UNKNOWN_TYPE
from tidemark_assets.parameter import WINDOWS, windows_reader

# Creates a project with Dagster's tools, one process per command.
pytestmark = pytest.mark.slow

COMPONENT, PLACES, TRIALS, BUSIEST = (
    text for _, _, text in blocks("docs/existing_dagster_project.md")
)
"""The code blocks of the page."""

FILES = {
    "src/my_project/defs/windows/defs.yaml": COMPONENT,
    "src/my_project/defs/trials/defs.yaml": f"{COMPONENT.partition('attributes')[0]}{TRIALS}",
    "src/my_project/defs/busiest.py": BUSIEST,
    "src/my_project/defs/report.py": """\
import dagster as dg
import pandas as pd
import pyarrow as pa

days = dg.DailyPartitionsDefinition(start_date="2026-01-01")


@dg.asset(partitions_def=days)
def of_the_day(orders_hourly: pd.DataFrame) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"windows": len(orders_hourly)})


@dg.asset(partitions_def=days, ins={"orders_hourly": dg.AssetIn(metadata={"final": True})})
def of_the_day_final(orders_hourly: pa.Table) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"windows": orders_hourly.num_rows})


@dg.asset
def of_all(orders_hourly) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"windows": len(orders_hourly)})


@dg.asset
def as_a_list(orders_hourly: list) -> None: ...


@dg.asset(
    partitions_def=days, ins={"tried": dg.AssetIn(["trials", "orders_hourly"])}
)
def of_a_trial(tried: pd.DataFrame) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"windows": len(tried)})


defs = dg.Definitions(
    assets=[of_the_day, of_the_day_final, of_all, as_a_list, of_a_trial],
    executor=dg.multi_or_in_process_executor,
)
""",
}


OWN = ("shop", "my_project")


ITSELF = '{"execution": {"config": {"in_process": {}}}}'
"""Run config for in-process execution."""


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment variables of commands in the project."""
    folder = tmp_path_factory.mktemp("surroundings")
    return {**of_dagster(folder), "TRIALS_HOME": str(folder / "trials")}


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, surroundings: dict[str, str]
) -> Iterator[Path]:
    """Create the project, which contains the package that `tidemark new` writes."""
    place = tmp_path_factory.mktemp("projects")
    new = ("create-dagster", "project", "my-project", "--no-uv-sync")
    dagsters_own(*new, place=place, env=surroundings)
    root, kind = place / "my-project", "tidemark.dagster.WindowedDomains"
    scaffold = ("scaffold", "defs", kind, "windows", "--domain", "shop")
    dagsters_own("dg", *scaffold, place=root, env=surroundings)
    made = root / "src" / "my_project" / "defs" / "windows" / "defs.yaml"
    assert yaml.safe_load(made.read_text()) == yaml.safe_load(COMPONENT)
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    written = Path(starter.__file__).parent
    shutil.copytree(written / "project" / "shop", root / "src" / "shop")
    shutil.copy(written / "files" / "shop" / "connectors.py", root / "src" / "shop")
    shutil.copytree(written / "files" / "landing", root / "landing")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "src"))
        patch.setenv("TIDEMARK_HOME", str(root / "home"))
        patch.setenv("TRIALS_HOME", surroundings["TRIALS_HOME"])
        yield root
    # The project of another test may use one of these names.
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


# Dagster's own binding of checks uses a beta feature.
@pytest.mark.filterwarnings("ignore:Parameter `execution_type`:dagster.BetaWarning")
def test_an_asset_of_the_project_gets_windows_as_a_parameter(
    project: Path,
    engine: Settings,
    spark: SparkSession,
    instance: dg.DagsterInstance,
) -> None:
    """The assets load the windows of a day, its final windows only, and those of all days."""
    found = dg.load_from_defs_folder(path_within_project=project / "src" / "my_project")
    assert {"tidemark", WINDOWS, "trials_tidemark", f"trials_{WINDOWS}"} <= (
        found.resources or {}
    ).keys()
    assert found.executor is dg.multi_or_in_process_executor
    settings = engine.model_copy(
        update={"database": f"test_{uuid4().hex[:12]}", "landing": str(project / "landing")}
    )
    resources = {
        "tidemark": OnTestSession(settings, spark, registered=True),
        WINDOWS: windows_reader,
    }
    known = (a for a in found.assets or [] if isinstance(a, dg.AssetsDefinition | dg.AssetSpec))
    keys = {"trials", "of_a_trial"}
    assets = [a for a in known if not keys & {p for key in _keys(a) for p in key.path}]

    def made(*names: str, partition_key: str | None = None) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            assets,
            resources=resources,
            instance=instance,
            selection=list(names),
            partition_key=partition_key,
        )

    def windows(result: dg.ExecuteInProcessResult, asset: str) -> object:
        [event] = result.asset_materializations_for_node(asset)
        return event.metadata["windows"].value

    assert made("orders_log").success
    day = "2026-01-01"
    assert made("orders_hourly", partition_key=day).success
    done = made("of_the_day", "of_the_day_final", partition_key=day)
    rows = spark.read.table(f"{settings.database}.orders_hourly").toPandas()
    final = int(rows["final"].sum())
    assert 0 < final < len(rows)
    assert windows(done, "of_the_day") == len(rows)
    assert windows(done, "of_the_day_final") == final
    assert windows(made("of_all"), "of_all") == len(rows)
    for key, best in ((day, "york"), ("2026-01-02", "")):
        [event] = made("busiest", partition_key=key).asset_materializations_for_node("busiest")
        assert event.metadata["best"].value == best
    with pytest.raises(dg.Failure, match="Polars DataFrame or as an Arrow table, not as List"):
        made("as_a_list")
    # The columns in the definition equal the columns of the tables.
    graph = found.resolve_asset_graph()
    for asset, name, table in (
        ("orders_hourly", "dagster/column_schema", "orders_hourly"),
        ("orders_hourly", "columns of orders_hourly_quarantine", "orders_hourly_quarantine"),
        ("orders_log", "columns of orders_timeline", "orders_timeline"),
    ):
        told = _columns(graph.get(dg.AssetKey(asset)).metadata[name])
        there = spark.read.table(f"{settings.database}.{table}").schema
        assert {c.name for c in told} == set(there.names), table
        for column in told:
            assert column.type in (UNKNOWN_TYPE, there[column.name].dataType.simpleString()), column


def _columns(told: object) -> Sequence[dg.TableColumn]:
    schema = getattr(told, "schema", told)
    assert isinstance(schema, dg.TableSchema)
    return schema.columns


def _keys(asset: dg.AssetsDefinition | dg.AssetSpec) -> Iterable[dg.AssetKey]:
    return asset.keys if isinstance(asset, dg.AssetsDefinition) else [asset.key]


@pytest.mark.nightly
def test_dg_checks_and_launches_assets_under_a_prefix(
    project: Path, surroundings: dict[str, str], engine: Settings
) -> None:
    """The page's commands check all definitions, then run an ingest, a day and an own asset."""
    env = surroundings | {
        "PYTHONPATH": str(project / "src"),
        "TIDEMARK_HOME": str(project / "home"),
        "TRIALS_HOME": str(engine.home),
        "TIDEMARK_LANDING": str(project / "landing"),
        "TIDEMARK_DATABASE": f"test_{uuid4().hex[:12]}",
    }

    trials = project / "src" / "my_project" / "defs" / "trials" / "defs.yaml"
    trials.write_text(trials.read_text().replace("15102", str(engine.engine_port)))

    def dg_says(*arguments: str) -> str:
        return dagsters_own("dg", *arguments, place=project, env=env)

    with ThreadPoolExecutor() as beside:
        checked = beside.submit(dg_says, "check", "defs")
        dg_says("launch", "--job", "trials_shop_ingest", "--config-json", ITSELF)
        day = ("--partition", "2026-01-01", "--config-json", ITSELF)
        dg_says("launch", "--assets", "trials/orders_hourly,of_a_trial", *day)
    assert "All definitions loaded successfully." in checked.result()
    with dg.DagsterInstance.from_config(env["DAGSTER_HOME"]) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("of_a_trial"))
        [brought] = instance.fetch_materializations(
            dg.AssetKey(["trials", "orders_log"]), limit=9
        ).records
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["windows"].value == 4
    assert brought.asset_materialization is not None
    assert not (project / "home" / "warehouse").exists()


def test_two_components_with_the_same_prefix_are_refused(project: Path) -> None:
    defs = project / "src" / "my_project" / "defs"
    shutil.copytree(defs / "windows", defs / "more")
    try:
        with pytest.raises(Exception, match="WindowedDomains") as told:
            dg.load_from_defs_folder(path_within_project=project / "src" / "my_project")
        said = str(told.value.__cause__)
        assert said == (
            "This project has 2 WindowedDomains components with no `key_prefix`. Let one component "
            "name all domains, for example `domains: [shop]`, or give each a `key_prefix` of its "
            "own."
        )
    finally:
        shutil.rmtree(defs / "more")


# Dagster's own snapshot reads deprecated attributes.
@pytest.mark.filterwarnings("ignore")
def test_the_repository_snapshot_has_settings_but_not_the_token(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE", "of_the_shop")
    monkeypatch.setenv("TIDEMARK_TOKEN", "not-to-be-seen")
    file = project / "src" / "my_project" / "defs" / "windows" / "defs.yaml"
    written = file.read_text()
    file.write_text(f"{written.partition('attributes')[0]}{PLACES}")
    try:
        found = dg.load_from_defs_folder(path_within_project=project / "src" / "my_project")
    finally:
        file.write_text(written)
    # Dagster renders its pages from this snapshot.
    told = serialize_value(RepositorySnap.from_def(found.get_repository_def()))
    assert "of_the_shop" in told
    assert "TIDEMARK_TOKEN" in told
    assert "not-to-be-seen" not in told
