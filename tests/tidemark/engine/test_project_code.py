"""A project's code reaches an engine that has neither the project nor Tidemark in its Python."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.processes.own_engine import OwnEngine, own_engine

# Starts an engine, and processes that use it.
pytestmark = pytest.mark.slow

_CONNECTORS = """
from stall.transforms import sales
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector


def _connector(landing):
    return FileConnector(sales, landing, format="csv", options={"header": True})


ingestion = Ingestion(source=sales, connector=_connector)
"""

_TRANSFORMS = """
import prices
from pyspark.sql import functions as F
from tidemark import agg
from tidemark import Source
from tidemark import windowed_asset
from tidemark import BoundedOutOfOrderness
from tidemark import Tumbling

sales = Source(
    name="sales",
    columns={"at": "TIMESTAMP", "shop": "STRING", "amount": "DOUBLE"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
)


@windowed_asset(
    source=sales, keys=["shop"], window=Tumbling("1 hour"), aggregates={"total": agg.sum("amount")}
)
def sales_hourly(sales):
    return sales.withColumn("amount", F.udf(prices.taxed, "double")("amount"))
"""

_PRICES = """
TAX = {tax}


def taxed(amount):
    return amount + TAX
"""

_STREAM = """
from tidemark import engine
from tidemark.base.project import find_project
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.streams import continuous

find_project()
from stall.transforms import sales_hourly

settings = Settings()
with engine.visit_session(settings, continuous.session_id(settings, "sales_hourly")) as spark:
    warehouse = Warehouse(spark, settings.warehouse, settings.database)
    query = continuous.start_query(warehouse, sales_hourly, available_now=True)
    query.awaitTermination()
"""


@dataclass(frozen=True)
class Project:
    """A project in a folder of its own: a package with definitions, and a module next to it."""

    folder: Path
    address: str

    def write_tax(self, tax: str) -> None:
        (self.folder / "prices.py").write_text(_PRICES.format(tax=tax))

    def land(self, hour: int) -> None:
        """Add a file with one event of an hour."""
        folder = self.folder / "landing" / "sales"
        folder.mkdir(parents=True, exist_ok=True)
        event = f"at,shop,amount\n2026-01-01T{hour:02}:30:00Z,york,1\n"
        (folder / f"{hour}.csv").write_text(event)
        assert self.call("ingest", "sales").returncode == 0

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(Path(sys.executable).with_name("tidemark")), *arguments])

    def stream(self) -> None:
        """Run the asset's streaming query until it has processed all arrivals."""
        done = self._run([sys.executable, "-c", _STREAM])
        assert done.returncode == 0, done.stderr

    def totals(self) -> list[float]:
        """Return the totals of all windows, the earliest window first."""
        done = self.call("show", "sales_hourly", "--json")
        rows = json.loads(done.stdout)
        return [row["total"] for row in sorted(rows, key=lambda row: row["window_start"])]

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        kept = {name: text for name, text in os.environ.items() if "TIDEMARK_" not in name}
        environment = {**kept, "TIDEMARK_REMOTE": self.address, "COLUMNS": "200"}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    package = folder / "stall"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "connectors.py").write_text(_CONNECTORS)
    (package / "transforms.py").write_text(_TRANSFORMS)
    (folder / "tidemark.toml").write_text('domains = "stall"\nlanding = "landing"\n')
    with own_engine(OwnEngine(tmp_path_factory.mktemp("engine"))) as engine:
        yield Project(folder, engine.address)


def test_functions_run_with_the_code_of_each_run_and_each_start_of_a_stream(
    project: Project,
) -> None:
    project.write_tax("10")
    project.land(8)
    done = project.call("run", "sales_hourly")
    assert done.returncode == 0, done.stderr
    project.write_tax("20")
    project.land(9)
    project.stream()
    # The stream has the same session as before, whose Python workers are still idle.
    project.write_tax("30")
    project.land(10)
    # This event ends the window of the one before.
    project.land(11)
    project.stream()
    assert project.totals() == [11, 21, 31]


def test_an_error_of_a_function_names_the_line_in_the_project(project: Project) -> None:
    project.write_tax("'no number'")
    project.land(12)
    done = project.call("run", "sales_hourly")
    assert done.returncode == 2
    assert "a Python function failed at prices.py, line 6: TypeError" in " ".join(
        done.stderr.split()
    )


def test_the_engine_fits_although_it_lacks_the_project(project: Project) -> None:
    done = project.call("engine", "check")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_second_project_with_the_same_database_is_refused_before_any_work(
    project: Project, tmp_path: Path
) -> None:
    project.write_tax("10")
    project.land(13)
    second = Project(tmp_path, project.address)
    shutil.copytree(project.folder / "stall", tmp_path / "stall")
    shutil.copy(project.folder / "tidemark.toml", tmp_path)
    second.write_tax("10")
    for command in (("ingest", "sales"), ("run", "sales_hourly"), ("engine", "check")):
        done = second.call(*command)
        assert done.returncode == 2
        assert "set TIDEMARK_DATABASE to another name" in " ".join(done.stderr.split())
