"""Test the assets of docs/sql.md: in SQL, in YAML and in Python, they are the same."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import DataFrame

import tidemark as tm
import tidemark_streaming.starter as starter
from helpers.suite.pages import blocks
from tidemark.base.settings import Settings
from tidemark.dagster import TidemarkAsset, dagster_asset
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark_assets.asset_component import _read_nodes
from tidemark_streaming.scenario.read.definition import Title
from tidemark_streaming.scenario.read.parse import read_definitions

[SQL, YAML] = [text for _, _, text in blocks("docs/sql.md")]
DAYS = dg.DailyPartitionsDefinition("2026-01-01")

# Dagster itself uses what Pydantic and Dagster no longer recommend, or not yet.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def in_sql() -> ModuleType:
    """The file of the page with the asset in SQL."""
    module = ModuleType("orders")
    exec(compile(SQL, "orders.py", "exec"), vars(module))
    return module


def in_yaml(text: str = YAML, path: Path = Path("defs.yaml")) -> Definition:
    """Return the definition of the page in YAML."""
    nodes = _read_nodes(path, text, 0, "attributes")
    transform = read_definitions(nodes, Title("orders_hourly", accumulation=None)).transform
    assert transform is not None
    return transform


def in_python(source: tm.Source) -> Definition:
    @tm.windowed_asset(
        source=source,
        keys=["city"],
        window=tm.Tumbling("1 hour"),
        allowed_lateness="1 hour",
        aggregates={
            "orders": tm.agg.count(),
            "revenue": tm.agg.sum("amount", where="amount < 1000"),
        },
        expectations=[tm.expect.matches_log(), tm.expect.between("revenue", 0)],
    )
    def orders_hourly(rows: DataFrame) -> DataFrame:
        return rows.where("amount > 0")

    return orders_hourly


def refusal(text: str, path: Path = Path("defs.yaml")) -> str:
    with pytest.raises(tm.DefinitionError) as refused:
        in_yaml(text, path)
    return str(refused.value)


def test_the_forms_give_the_same_asset(in_sql: ModuleType) -> None:
    assets: list[TidemarkAsset] = [
        in_sql.orders_hourly,
        dagster_asset(in_yaml(), partitions_def=DAYS),
        dagster_asset(in_python(in_sql.orders), partitions_def=DAYS),
    ]
    prints = {compute_fingerprint(asset.definition) for asset in assets}
    assert len(prints) == 1
    [sql, yaml, python] = [asset.get_asset_spec() for asset in assets]
    assert prints == {sql.code_version}
    assert "dagster/code_references" not in sql.metadata
    lineage = sql.metadata["dagster/column_lineage"]
    assert [dep.column_name for dep in lineage.deps_by_column["revenue"]] == ["amount"]
    for other in (yaml, python):
        assert other.deps == sql.deps
        for name, value in sql.metadata.items():
            assert other.metadata[name] == value, name


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("WHERE amount > 0", "WHERE amont > 0", "defs.yaml:20:13: 'amont' is not a column of"),
        ("end, city\n    allowed", "end, town\n    allowed", "defs.yaml:21:42: 'town' is not a"),
        (
            "      GROUP BY window_start, window_end, city\n",
            "",
            "defs.yaml:20:23: the SELECT needs",
        ),
        ("    source: orders\n", "    source: order\n", "defs.yaml:14: 'order' is not a source;"),
        (
            "TABLE orders",
            "TABLE order",
            "defs.yaml:19:25: 'order' is not the source of this definition: write orders, or ch",
        ),
        (
            "    allowed_lateness",
            "    keys: [city]\n    allowed_lateness",
            "defs.yaml:22: 'keys' is not part of a transform in SQL; allowed: source, sql, allow",
        ),
        (
            "- matches_log",
            "- matches_logs",
            "defs.yaml:24: 'matches_logs' is not an expectation; allowed: between, column_great",
        ),
        (
            "- between:",
            "- betwixt:",
            "defs.yaml:25: 'betwixt' is not an expectation; allowed: between, column_greater, l",
        ),
        (
            "min_value: 0",
            "minimum: 0",
            "defs.yaml:25: between has no parameter 'minimum'. In addition to its own parameters",
        ),
        (
            "- matches_log",
            "- no_gap: {windows: 3, size: 1}",
            "defs.yaml:24: no_gap has no parameter 'size'. Its parameters are windows, level.",
        ),
        (
            "min_value: 0",
            "min_value: [0]",
            "defs.yaml:25: between: min_value must be",
        ),
        (
            "min_value: 0",
            "min_value: 2026-01-41",
            "defs.yaml:25: '2026-01-41' is not a value: write it between quotes.",
        ),
        ("column: revenue", "column: revenu", "defs.yaml:25: Asset 'orders_hourly': expectation"),
        (
            "- matches_log",
            "- matches_log\n      - matches_log",
            "defs.yaml:25: Asset 'orders_hourly': expectation matches_log() is given twice",
        ),
        (
            "{column: revenue, min_value: 0}",
            "revenue",
            "defs.yaml:25: the arguments of between must be a mapping, as in {column: revenue}",
        ),
    ],
)
def test_a_mistake_in_yaml_is_named_with_its_line(before: str, after: str, message: str) -> None:
    assert before in YAML
    assert refusal(YAML.replace(before, after, 1)).startswith(message)


def test_a_mistake_in_a_text_of_one_line_is_named_with_its_line() -> None:
    begin = YAML.index("sql: |")
    end = YAML.index("    allowed_lateness")
    text = f"{YAML[:begin]}sql: SELECT 1\n{YAML[end:]}"
    assert refusal(text).startswith("defs.yaml:15: line 1, column 9: the SELECT needs FROM")


def test_sql_can_be_in_a_file(tmp_path: Path) -> None:
    begin = YAML.index("sql: |")
    end = YAML.index("    allowed_lateness")
    text = YAML[:begin] + "sql: orders_hourly.sql\n" + YAML[end:]
    file = tmp_path / "orders_hourly.sql"
    file.write_text(YAML[begin:end].partition("\n")[2])
    path = tmp_path / "defs.yaml"
    assert compute_fingerprint(in_yaml(text, path)) == compute_fingerprint(in_yaml())
    file.write_text(file.read_text().replace("amount > 0", "amont > 0"))
    assert refusal(text, path).startswith(f"{file}:5:13: 'amont' is not a column of source")
    file.unlink()
    assert refusal(text, path).startswith(f"{file}: the file can't be read: no such file")


EXPECTATIONS = [
    ("matches_log", tm.expect.matches_log()),
    ("matches_log: {level: warning}", tm.expect.matches_log(level="warning")),
    ("unique_key", tm.expect.unique_key()),
    ("between: {column: orders, max_value: 1.5}", tm.expect.between("orders", None, 1.5)),
    ("between: {column: city, min_value: a}", tm.expect.between("city", "a")),
    ("not_null: {column: city, mostly: 0.9}", tm.expect.not_null("city", mostly=0.9)),
    ("one_of: {column: city, values: [york, 3]}", tm.expect.one_of("city", ["york", 3])),
    (
        "column_greater: {column: orders, than: revenue}",
        tm.expect.column_greater("orders", "revenue"),
    ),
    ("max_change_after_close: {share: 0.1}", tm.expect.max_change_after_close(0.1)),
    ("late_share_below: {share: 0.2}", tm.expect.late_share_below(0.2)),
    ("no_gap: {windows: 3}", tm.expect.no_gap(3)),
]


@pytest.mark.parametrize(("text", "expectation"), EXPECTATIONS)
def test_each_expectation_can_be_in_yaml(text: str, expectation: tm.expect.Expectation) -> None:
    [begin, _, end] = [*YAML.partition("      - matches_log\n")]
    end = end[end.index("  partitions_def") :]
    found = in_yaml(f"{begin}      - {text}\n{end}")
    expected = replace(in_yaml(), expectations=(expectation,))
    assert compute_fingerprint(found) == compute_fingerprint(expected)


def test_every_expectation_is_offered_in_yaml() -> None:
    offered = refusal(YAML.replace("- matches_log", "- none_of_them")).partition("allowed: ")[2]
    names = {"ERROR", "WARNING", "Expectation"}
    assert set(offered.rstrip(".").split(", ")) == set(tm.expect.__all__) - names


@pytest.fixture
def project(engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of a project with a landing folder of CSV files."""
    shutil.copytree(Path(starter.__file__).parent / "files" / "landing", tmp_path / "landing")
    monkeypatch.setenv("TIDEMARK_HOME", str(engine.home))
    monkeypatch.setenv("TIDEMARK_ENGINE_PORT", str(engine.engine_port))
    monkeypatch.setenv("TIDEMARK_DATABASE", f"test_{uuid4().hex[:12]}")
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))


def published(name: str) -> list[dict[str, Any]]:
    """Return the rows of a table without the numbers of its commits."""
    rows = tm.read(name).to_pyarrow_table().to_pylist()
    numbers = ("commit_number", "as_of")
    kept = [{n: v for n, v in row.items() if n not in numbers} for row in rows]
    return sorted(kept, key=lambda row: (row["window_start"], row["city"]))


@pytest.mark.usefixtures("project")
def test_the_forms_give_the_same_tables(in_sql: ModuleType, instance: dg.DagsterInstance) -> None:
    others = [
        dagster_asset(replace(definition, name=name), partitions_def=DAYS)
        for name, definition in (("in_yaml", in_yaml()), ("in_python", in_python(in_sql.orders)))
    ]
    assets = [*in_sql.defs.assets, *others]
    job = dg.Definitions(assets=assets).resolve_implicit_global_asset_job_def()
    runs = {"orders_log": None, **dict.fromkeys(["orders_hourly", "in_yaml", "in_python"], "day")}
    for name, day in runs.items():
        done = job.execute_in_process(
            asset_selection=[dg.AssetKey(name)],
            instance=instance,
            partition_key=None if day is None else "2026-01-01",
        )
        assert done.success
    tables = [published(name) for name in ("orders_hourly", "in_yaml", "in_python")]
    assert {"york", "leeds"} <= {row["city"] for row in tables[0]}
    assert tables[0] == tables[1] == tables[2]


def test_the_component_of_the_page_can_be_loaded() -> None:
    with create_defs_folder_sandbox() as sandbox:
        file = sandbox.defs_folder_path / "orders_hourly" / "defs.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(YAML)
        with sandbox.build_all_defs() as definitions:
            spec = definitions.resolve_asset_graph().get(dg.AssetKey("orders_hourly"))
            assert spec.code_version == compute_fingerprint(in_yaml())
