"""The asset graph as `workspace.yaml` gives it: valid, and as its reviewed snapshot says."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.fingerprint import fingerprint
from tidemark_assets.definitions import build_definitions
from tidemark_assets.flights import definitions as flights_definitions
from tidemark_assets.flights.definitions import presentation
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_assets.marts import mart_assets
from tidemark_streaming import orchestrator

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).parent / "snapshots" / "asset_graph.json"


def asset_graph(settings: Settings) -> dict[str, object]:
    """What a reviewer wants to see of each asset, by key."""
    domains = build_definitions(settings.domains, {"tidemark": None})
    marts = dg.Definitions(assets=mart_assets(settings))
    graph = dg.Definitions.merge(domains, marts).resolve_asset_graph()
    nodes = sorted(graph.asset_nodes, key=lambda node: node.key.to_user_string())
    return {
        node.key.to_user_string(): {
            "group": node.group_name,
            # Without the code of a model, which dagster-dbt adds to it.
            "description": (node.description or "").partition("\n\n#### Raw SQL")[0],
            "kinds": sorted(node.kinds),
            "owners": sorted(node.owners),
            "tags": {k: v for k, v in node.tags.items() if not k.startswith("dagster/")},
            "parents": sorted(parent.to_user_string() for parent in node.parent_keys),
            "together": sorted(k.to_user_string() for k in node.execution_set_asset_keys),
            "partitions": _partitions(node.partitions_def),
            "backfill": node.backfill_policy.policy_type.value if node.backfill_policy else None,
            "pools": sorted(node.pools or ()),
            "metadata": {
                # dbt's own: its project, manifest and objects of its translation. Code is at
                # another place in each checkout.
                k: _plain(v)
                for k, v in node.metadata.items()
                if not k.startswith(("dagster_dbt/", "dagster-dbt/"))
                and k != "dagster/code_references"
            },
            "checks": sorted(key.name for key in node.check_keys),
        }
        for node in nodes
    }


def _partitions(partitions: dg.PartitionsDefinition[str] | None) -> str | None:
    if partitions is None:
        return None
    ends = f"{partitions.get_first_partition_key()} to {partitions.get_last_partition_key()}"
    return f"{partitions}: {ends}"


def _plain(value: object) -> object:
    if isinstance(value, dg.TableSchema):
        return [f"{c.name} {c.type}: {c.description or ''}".rstrip(": ") for c in value.columns]
    if isinstance(value, dg.TableColumnLineage):
        return {
            name: [f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps]
            for name, deps in value.deps_by_column.items()
        }
    return getattr(value, "value", value) if isinstance(value, dg.MetadataValue) else str(value)


def test_the_graph_is_as_reviewed(tmp_path: Path) -> None:
    """After an intended change: `UPDATE_SNAPSHOTS=1 pytest tests/tidemark_assets`, and review."""
    found = asset_graph(Settings(home=tmp_path))
    found = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text()


def test_the_workspace_validates(tmp_path: Path) -> None:
    dagster = Path(sys.executable).with_name("dagster")
    result = subprocess.run(
        [dagster, "definitions", "validate", "-w", ROOT / "workspace.yaml"],
        cwd=ROOT,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path), "TIDEMARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "All code locations passed validation" in result.stderr + result.stdout


def test_the_workspace_is_that_of_the_default_domains(tmp_path: Path) -> None:
    ours = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    written = yaml.safe_load(orchestrator.workspace(Settings(home=tmp_path)).read_text())[
        "load_from"
    ]
    here = {"working_directory": str(Path.cwd())}
    assert written == [{"python_module": {**each["python_module"], **here}} for each in ours]


def test_no_two_assets_of_one_step_lie_in_a_diamond() -> None:
    """Dagster (1.13) refuses to backfill a step's assets where one has two parents among them."""
    graph = build_definitions(Settings().domains, {"tidemark": None}).resolve_asset_graph()
    for node in graph.asset_nodes:
        assert len(node.parent_keys & node.execution_set_asset_keys) <= 1, node.key


def test_a_change_of_the_definition_changes_the_code_version() -> None:
    assert fingerprint(departures_hourly) == fingerprint(replace(departures_hourly))
    for changed in (
        replace(departures_hourly, keys=("carrier",)),
        replace(departures_hourly, allowed_lateness=0),
        replace(departures_hourly, expectations=()),
        replace(departures_hourly, expectations=(), aggregates={"flights": agg.count()}),
    ):
        assert fingerprint(changed) != fingerprint(departures_hourly)
    graph = build_definitions(Settings().domains, {"tidemark": None}).resolve_asset_graph()
    asset = graph.get(dg.AssetKey(departures_hourly.table))
    assert asset.code_version == fingerprint(departures_hourly)


def test_partitions_of_an_asset_that_is_not_there_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(presentation, by_asset={"carrier_weeks": presentation.partitions})
    monkeypatch.setattr(flights_definitions, "presentation", wrong)
    with pytest.raises(DefinitionError, match=r"'carrier_weeks', which it does not define; it"):
        build_definitions(["tidemark_assets.flights"], {"tidemark": None})


def test_a_domain_without_a_presentation_is_one_sentence() -> None:
    with pytest.raises(DefinitionError, match=r"does not say how it appears in Dagster"):
        build_definitions(["json"], {"tidemark": None})
