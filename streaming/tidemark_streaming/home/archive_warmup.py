"""Run an engine's typical first tasks once, to create its class data archive (JVM AppCDS).

A separate engine, in a temporary home, ingests two small files, processes each with an incremental
run as `tidemark run` does, and answers a SQL query.
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from tidemark import engine
from tidemark.base.errors import TidemarkError
from tidemark.base.instants import format_instant, parse_instant
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.expectations.general import between
from tidemark.define.expectations.windowed import matches_log, volume_within
from tidemark.define.source import Source
from tidemark.define.transform import windowed_asset
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.engine.launch import archive, jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest

_COLUMNS = {"happened": "TIMESTAMP", "place": "STRING", "value": "INT"}
_MINUTE = 60_000_000
_READINGS = Source("readings", _COLUMNS, "happened", BoundedOutOfOrderness("3 hours"))


@windowed_asset(
    source=_READINGS,
    keys=["place"],
    window=Tumbling("1 hour"),
    allowed_lateness="3 hours",
    aggregates={
        "readings": agg.count(),
        "missing": agg.count(where="value is null"),
        "mean_value": agg.mean("value"),
        "greatest": agg.max("value"),
    },
    expectations=[
        between("mean_value", 0, 100),
        between("missing", max_value=10, level="warning"),
        matches_log(),
        volume_within(0.5, of="the same hour yesterday", at_least=10, level="warning"),
    ],
)
def readings_hourly(readings: DataFrame) -> DataFrame:
    """Readings by place and hour."""
    return readings


def main() -> None:
    """Create the engine's class data archive, unless it exists."""
    try:
        java = find_java()
        paths = jars.class_path(java, Settings().maven_repository)
        if archive.make_archive(java, paths, _warm_up):
            _print_line("built: engines that start from now on use it")
    except TidemarkError as error:
        sys.exit(f"archive: {error}")


def _warm_up(java_options: str) -> None:
    _print_line(f"this takes a minute, and 270 MB in {archive.FOLDER}")
    with tempfile.TemporaryDirectory(prefix="tidemark_rehearsal_") as folder:
        home = Path(folder)
        usual = Settings.model_fields["engine_java_options"].default
        settings = Settings(
            home=home,
            remote=None,
            token=None,
            engine_port=free_port(),
            engine_memory="1g",
            engine_java_options=f"{usual} {java_options}",
            engine_conf={},
            engine_jars=(),
            engine_ui_port=None,
            engine_event_log=None,
            warehouse=str(home / "warehouse"),
        )
        try:
            engine.ensure_engine(settings)
            spark = engine.connect_session(settings)
            try:
                _run_first_tasks(Warehouse(spark, settings.warehouse), home / "landing")
            finally:
                spark.stop()
        finally:
            # Java writes the archive before it exits.
            engine.stop_engine(settings, deadline=300)


def _run_first_tasks(warehouse: Warehouse, landing: Path) -> None:
    landing.mkdir()
    for number in range(2):
        _write_readings(landing, number)
        for _ in ingest(warehouse, FileConnector(_READINGS, landing, options={"header": True})):
            incremental(warehouse, readings_hourly)
    name = f"{warehouse.database}.{readings_hourly.published_table}"
    warehouse.spark.sql(f"SELECT place, sum(readings) FROM {name} GROUP BY place").collect()


def _write_readings(landing: Path, number: int) -> None:
    """Write a file with the readings of ten hours, out of order: every seventh reading is four
    hours older than its neighbors.

    Args:
        number: the number of the file, counted from 0. Each file continues ten hours later.
    """
    first = parse_instant("2026-01-01") + number * 600 * _MINUTE
    lines = [",".join(_COLUMNS)]
    for minute in range(600):
        happened = first + (minute - 240 * (minute % 7 == 0)) * _MINUTE
        value = "" if minute % 50 == 0 else minute % 97
        lines.append(f"{format_instant(happened)},p{minute % 3},{value}")
    (landing / f"{number}.csv").write_text("\n".join(lines) + "\n")


def _print_line(line: str) -> None:
    sys.stderr.write(f"archive: {line}\n")


if __name__ == "__main__":
    main()
