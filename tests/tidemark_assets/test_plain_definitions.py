"""Test that no definition in the folder of a Dagster project is skipped without a message."""

import sys
from collections.abc import Mapping

import pytest
from dagster.components.testing import create_defs_folder_sandbox

SOURCE = """\
import dagster as dg
import tidemark as tm
from tidemark.connectors import FileConnector, Ingestion
from tidemark.dagster import dagster_asset

orders = tm.Source(
    name="orders",
    columns="at TIMESTAMP, city STRING",
    event_time="at",
    watermark=tm.BoundedOutOfOrderness("10 minutes"),
)
days = dg.DailyPartitionsDefinition("2026-01-01")


@tm.windowed_asset(source=orders, window=tm.Tumbling("1 hour"), aggregates={"n": tm.agg.count()})
def hourly(orders):
    return orders
"""
ROLL_UP = "daily = tm.rollup(of=hourly, name='daily', window=tm.Tumbling('1 day'))\n"
UNION = """\
from dataclasses import replace

both = tm.union(name="both", of=[orders, replace(orders, name="more")])
"""
INGESTION = "connector = Ingestion(orders, lambda landing: FileConnector(orders, landing))\n"
HOURLY_ASSET = "hourly_asset = dagster_asset(hourly, partitions_def=days)\n"

# Dagster itself uses what Pydantic and Dagster no longer recommend, or not yet.
pytestmark = pytest.mark.filterwarnings("ignore")


def load(files: Mapping[str, str]) -> set[str]:
    """Load the folder `src/NAME` of a project with modules. Return the keys of its assets."""
    with create_defs_folder_sandbox() as sandbox:
        package = sandbox.defs_folder_path.parent
        (package / "__init__.py").touch()
        project = f'[tool.dg.project]\nroot_module = "{package.name}"\n'
        (package.parents[1] / "pyproject.toml").write_text(project)
        for file, text in files.items():
            target = package / file
            target.parent.mkdir(exist_ok=True)
            target.write_text(text.replace("PROJECT", package.name))
        try:
            with sandbox.build_all_defs() as definitions:
                graph = definitions.resolve_asset_graph()
                return {key.to_user_string() for key in graph.materializable_asset_keys}
        finally:
            # The sandbox unloads only the modules of its folder `defs`.
            for name in list(sys.modules):
                if name.partition(".")[0] == package.name:
                    del sys.modules[name]


def refusal(files: Mapping[str, str]) -> str:
    with pytest.raises(Exception, match="Error while building definitions for <root>") as refused:
        load(files)
    error: BaseException = refused.value
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (SOURCE, "dagster_asset(hourly, partitions_def=…)"),
        (
            SOURCE + ROLL_UP,
            "dagster_asset(hourly, partitions_def=…), dagster_asset(daily, partitions_def=…)",
        ),
        (SOURCE + HOURLY_ASSET + UNION, "dagster_asset(both)"),
        (SOURCE + HOURLY_ASSET + INGESTION, "dagster_asset(connector)"),
        (SOURCE + HOURLY_ASSET + ROLL_UP + "several = [daily]\ndel daily\n", "(several, part"),
    ],
)
def test_a_plain_definition_is_refused_with_its_file(text: str, calls: str) -> None:
    message = refusal({"defs/orders.py": text})
    file, _, rest = message.partition(": ")
    assert file.endswith("/defs/orders.py")
    assert rest.startswith("Dagster skips a definition of Tidemark that is not a Dagster asset.")
    assert calls in rest


def test_definitions_that_are_assets_are_loaded() -> None:
    text = SOURCE + HOURLY_ASSET + UNION + INGESTION
    text += "logs = [dagster_asset(both), dagster_asset(connector)]\n"
    assert load({"defs/orders.py": text}) == {"hourly", "both_log", "orders_log"}


def test_a_definition_may_become_an_asset_in_another_module() -> None:
    imported = "from PROJECT.defs.orders import dagster_asset, days, hourly\n"
    assert load({"defs/orders.py": SOURCE, "defs/windows.py": imported + HOURLY_ASSET}) == {
        "hourly"
    }


def test_a_plain_definition_may_be_in_a_module_that_dagster_does_not_load() -> None:
    roll_up = "from PROJECT.shop import dagster_asset, days, tm\nimport PROJECT.shop\n"
    roll_up += ROLL_UP.replace("of=hourly", "of=PROJECT.shop.hourly")
    roll_up += "daily_asset = dagster_asset(daily, partitions_def=days)\n"
    assert load({"shop.py": SOURCE, "defs/windows.py": roll_up}) == {"daily"}
    imported = "from PROJECT.shop import hourly\n"
    assert "dagster_asset(hourly, part" in refusal({"shop.py": SOURCE, "defs/windows.py": imported})


def test_the_definitions_of_a_domain_are_assets() -> None:
    """The component that loads a domain may be loaded after the modules that import from it."""
    before, _, transform = SOURCE.partition("\n\n\n")
    options = "from tidemark.dagster import DagsterOptions\nfrom PROJECT.shop.sources import days\n"
    files = {
        "shop/__init__.py": "",
        "shop/sources.py": before,
        "shop/connectors.py": f"from PROJECT.shop.sources import *\n{INGESTION}",
        "shop/transforms.py": f"from PROJECT.shop.sources import *\n\n\n{transform}",
        "shop/definitions.py": f"{options}presentation = DagsterOptions(partitions=days)\n",
        "defs/first.py": "from PROJECT.shop.transforms import hourly\n",
        "defs/windows/defs.yaml": (
            "type: tidemark.dagster.WindowedDomains\nattributes: {domains: [PROJECT.shop]}\n"
        ),
    }
    assert load(files) == {"hourly", "orders_log"}
    del files["defs/windows/defs.yaml"]
    assert "defs/first.py: Dagster skips" in refusal(files)
