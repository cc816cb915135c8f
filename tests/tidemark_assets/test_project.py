"""A Dagster project that is there already, laid out as its own scaffold does, with the component
and an asset of its own downstream."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import tidemark_streaming.starter as starter
from steps import OnTestSession
from tidemark.base.settings import Settings
from tidemark_assets.parameter import WINDOWS, windows_reader

FILES = {
    "pyproject.toml": """\
[project]
name = "my_project"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "my_project"
""",
    "src/my_project/__init__.py": "",
    "src/my_project/definitions.py": """\
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "src/my_project/defs/__init__.py": "",
    "src/my_project/defs/windows/defs.yaml": """\
type: tidemark_assets.component.WindowedDomains

attributes:
  domains: [shop]
""",
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


defs = dg.Definitions(
    assets=[of_the_day, of_the_day_final, of_all, as_a_list],
    executor=dg.multiprocess_executor,
)
""",
}


OWN = ("shop", "my_project")

WINDOWED = [f"orders_hourly{table}" for table in ("", "_late", "_late_loss", "_quarantine")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The project, of which the package that `tidemark new` writes is a part."""
    root = tmp_path_factory.mktemp("my-project")
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    written = Path(starter.__file__).parent
    shutil.copytree(written / "project" / "shop", root / "src" / "shop")
    shutil.copy(written / "files" / "shop" / "feed.py", root / "src" / "shop")
    shutil.copytree(written / "files" / "landing", root / "landing")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "src"))
        patch.setenv("TIDEMARK_HOME", str(root / "home"))
        yield root
    # Another test's project may have one of the names.
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]


# Dagster's own binding of checks uses what Dagster calls a beta.
@pytest.mark.filterwarnings("ignore:Parameter `execution_type`:dagster.BetaWarning")
def test_windows_reach_an_asset_of_the_project_as_a_parameter(
    project: Path,
    engine: Settings,
    spark: SparkSession,
    instance: dg.DagsterInstance,
) -> None:
    """All windows of the day, the final ones alone, and those of all days."""
    found = dg.load_from_defs_folder(path_within_project=project / "src" / "my_project")
    assert {"tidemark", WINDOWS} <= (found.resources or {}).keys()
    assert found.executor is dg.multiprocess_executor
    settings = engine.model_copy(
        update={"database": f"test_{uuid4().hex[:12]}", "landing": project / "landing"}
    )
    resources = {"tidemark": OnTestSession(settings, spark), WINDOWS: windows_reader}
    assets = [a for a in found.assets or [] if isinstance(a, dg.AssetsDefinition | dg.AssetSpec)]

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

    assert made("orders_log", "orders_dead_letters", "orders_timeline").success
    day = "2026-01-01"
    assert made(*WINDOWED, partition_key=day).success
    done = made("of_the_day", "of_the_day_final", partition_key=day)
    rows = spark.read.table(f"{settings.database}.orders_hourly").toPandas()
    final = int(rows["final"].sum())
    assert 0 < final < len(rows)
    assert windows(done, "of_the_day") == len(rows)
    assert windows(done, "of_the_day_final") == final
    assert windows(made("of_all"), "of_all") == len(rows)
    with pytest.raises(dg.Failure, match="as a pandas DataFrame or an Arrow table, not as List"):
        made("as_a_list")
    # What the definition told of the columns before is what is there.
    told = found.resolve_asset_graph().get(dg.AssetKey("orders_hourly")).metadata
    assert [c.name for c in told["dagster/column_schema"].columns] == list(rows.columns)
