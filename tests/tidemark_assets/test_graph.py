"""Test the asset graph of `workspace.yaml`: it is valid and equals its reviewed snapshot."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._config import ConfigTypeKind
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap

from helpers.dagster.dagsters import dagsters_own, of_dagster
from helpers.data.support import READINGS
from helpers.suite.pages import blocks
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.dagster import DagsterOptions
from tidemark.define import aggregates as agg
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark_assets.base.names import PLAIN, with_prefix
from tidemark_assets.definitions import build_definitions, domain_definitions
from tidemark_assets.flights import definitions as flights_definitions
from tidemark_assets.flights.definitions import presentation
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_assets.jobs.maintenance import maintenance
from tidemark_assets.marts import mart_assets
from tidemark_assets.metadata import describe
from tidemark_assets.tables.options import AssetOptions
from tidemark_assets.tables.source_assets import connector_asset
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.home import orchestrator
from tidemark_streaming.home.domains import load_domains
from tidemark_streaming.kafka import KafkaConnector

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).parent / "snapshots" / "asset_graph.json"


def asset_graph(settings: Settings, key_prefix: str | None = None) -> dict[str, Any]:
    """Return the facts that a reviewer needs of each asset, by key."""
    given = {"tidemark": None}
    domains = build_definitions(settings.domains, given, key_prefix=key_prefix)
    marts = dg.Definitions(assets=mart_assets(settings, key_prefix))
    graph = dg.Definitions.merge(domains, marts).resolve_asset_graph()
    nodes = sorted(graph.asset_nodes, key=lambda node: node.key.to_user_string())
    return {
        node.key.to_user_string(): {
            "group": node.group_name,
            # dagster-dbt appends the SQL of a model to its description.
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
                # dbt's own entries (project, manifest, translator objects) and code locations
                # differ between checkouts.
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


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return a home whose marts dbt parses only once."""
    return Settings(home=tmp_path_factory.mktemp("reviewed"))


def test_the_asset_graph_equals_its_reviewed_snapshot(reviewed: Settings) -> None:
    """After an intended change: `UPDATE_SNAPSHOTS=1 pytest tests/tidemark_assets`, then review."""
    found = asset_graph(reviewed)
    found = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text()


def test_a_key_prefix_changes_only_names_in_the_graph(reviewed: Settings) -> None:
    plain, found = asset_graph(reviewed), asset_graph(reviewed, "trials/dev")
    for key, node in found.items():
        of_columns = node["metadata"].get("dagster/column_lineage", {}).values()
        above = [*node["parents"], *node["together"], *(name for of in of_columns for name in of)]
        assert {name[:11] for name in (key, *above)} == {"trials/dev/"}, key
        assert node["group"].startswith("trials_dev_")
    bare = json.dumps(found).replace("trials/dev/", "").replace("trials_dev_", "")
    assert json.loads(bare) == plain


def test_homes_with_prefixes_share_one_project(tmp_path: Path) -> None:
    """Dagster accepts each name only once."""
    settings = Settings(home=tmp_path)

    def built(prefix: str | None) -> dg.Definitions:
        found = build_definitions(settings.domains, {"tidemark": prefix}, key_prefix=prefix)
        return dg.Definitions.merge(found, maintenance(with_prefix(prefix)))

    def called(definitions: dg.Definitions) -> dict[str, set[str]]:
        there = definitions.get_repository_def()
        jobs = [job for job in there.get_all_jobs() if not job.name.startswith("__")]
        return {
            "jobs": {job.name for job in jobs},
            # Dagster names the steps of checks, and separates the prefix from the key by "__".
            "steps": {n.name.replace("__", "_") for job in jobs for n in job.all_node_defs},
            "schedules": {schedule.name for schedule in there.schedule_defs},
            # Dagster adds a default sensor.
            "sensors": {s.name for s in there.sensor_defs if not s.name.startswith("default_")},
            "resources": {*(definitions.resources or ())},
        }

    alone = called(built(None))
    assert all(alone.values())
    together = called(dg.Definitions.merge(*map(built, (None, "dev", "trials/dev"))))
    for kind, names in alone.items():
        prefixed = {f"{with_prefix(p).own(name)}" for p in ("dev", "trials/dev") for name in names}
        assert names | prefixed == together[kind], kind


def test_an_invalid_key_prefix_is_refused_with_a_message() -> None:
    with pytest.raises(DefinitionError, match=r"'trials-dev' is not a valid key prefix: use"):
        build_definitions(["tidemark_assets.flights"], {}, key_prefix="trials-dev")


# Starts a Dagster process for each domain.
@pytest.mark.slow
def test_the_workspace_validates(tmp_path: Path) -> None:
    """Validate with `dg`, whose workspace has one project for each code location."""
    ours = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    modules = {m["location_name"]: m["module_name"] for m in (e["python_module"] for e in ours)}
    for name, module in modules.items():
        # Each project needs its own root module, which is empty here.
        (tmp_path / name / "src" / f"{name}_location").mkdir(parents=True)
        (tmp_path / name / "src" / f"{name}_location" / "__init__.py").touch()
        (tmp_path / name / "dg.toml").write_text(
            f'directory_type = "project"\n[project]\nroot_module = "{name}_location"\n'
            f'code_location_target_module = "{module}"\ncode_location_name = "{name}"\n'
        )
    places = ", ".join(f'{{ path = "{name}" }}' for name in modules)
    (tmp_path / "dg.toml").write_text(
        f'directory_type = "workspace"\n[workspace]\nprojects = [{places}]\n'
    )
    surroundings = of_dagster(tmp_path / "dagster") | {"TIDEMARK_HOME": str(tmp_path)}
    check = ("dg", "check", "defs", "--use-active-venv", "--log-level", "info")
    said = dagsters_own(*check, place=tmp_path, env=surroundings)
    for name in modules:
        assert f"Validation successful for code location {name}" in said


def test_the_workspace_lists_the_default_domains(tmp_path: Path) -> None:
    ours = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    written = yaml.safe_load(orchestrator.write_workspace(Settings(home=tmp_path)).read_text())[
        "load_from"
    ]
    here = {"working_directory": str(Path.cwd())}
    assert written == [{"python_module": {**each["python_module"], **here}} for each in ours]


def test_each_asset_can_be_selected_alone(reviewed: Settings) -> None:
    """In `dg launch`, jobs and backfills, no step requires several assets to run together."""
    domains = build_definitions(reviewed.domains, {"tidemark": None})
    marts = mart_assets(reviewed)
    graph = dg.Definitions.merge(domains, dg.Definitions(assets=marts)).resolve_asset_graph()
    nodes = [*graph.asset_nodes]
    assert len(nodes) == 21
    made = [n for n in nodes if n.is_executable]
    assert {n.key for n in made if n.execution_set_asset_keys != {n.key}} == set()
    alone = [dg.define_asset_job(f"only_{n}", selection=[m.key]) for n, m in enumerate(made)]
    jobs = dg.Definitions.merge(domains, dg.Definitions(assets=marts, jobs=alone))
    for n, node in enumerate(made):
        chosen = jobs.resolve_job_def(f"only_{n}").asset_layer.selected_asset_keys
        assert chosen == {node.key}


def test_side_tables_are_listed_in_the_metadata_of_their_asset(reviewed: Settings) -> None:
    """Each readable table of a definition is listed with its columns.

    A mart that reads such a table is downstream of the asset.
    """
    graph = asset_graph(reviewed)
    found = load_domains(reviewed.domains)
    for transform in found.transforms.values():
        metadata = graph[transform.published_table]["metadata"]
        beside = [f"{transform.published_table}_quarantine"] if transform.expectations else []
        beside += transform.late_tables
        beside += [transform.panes_table] if transform.accumulation else []
        for table in beside:
            assert f"`{table}`" in metadata["side tables"]
            assert len(metadata[f"columns of {table}"]) > 4
            assert table not in graph
    for ingestion in found.ingestions.values():
        log = graph[ingestion.source.log_table]["metadata"]
        beside = (ingestion.source.timeline_table, ingestion.source.dead_letters_table)
        assert {f"columns of {table}" for table in beside} <= log.keys()
    assert "departures_hourly" in graph["asset_reliability"]["parents"]


OPERATIONS = ["diff", "rebuild", "promote", "rollback"]
OPERATIONS += ["correct", "replay", "nightly", "release", "discard"]


def test_a_domain_has_four_jobs_and_two_sensors() -> None:
    """They do not grow with the number of its sources and assets."""
    there = build_definitions(["tidemark_assets.flights"], {"tidemark": None}).get_repository_def()
    jobs = {job.name for job in there.get_all_jobs()} - {"__ASSET_JOB"}
    assert jobs == {f"flights_{job}" for job in ("ingest", "catch_up", "operations", "streams")}
    sensors = {
        sensor.name: {target.job_name for target in sensor.targets} for sensor in there.sensor_defs
    }
    # Dagster adds this sensor for the automation conditions of some assets.
    sensors.pop("default_automation_condition_sensor", None)
    assert sensors == {
        "flights_arrivals": {"flights_ingest", "flights_catch_up"},
        "flights_reports": {"flights_streams"},
    }
    [schedule] = there.schedule_defs
    assert (schedule.name, schedule.job_name) == ("flights_nightly", "flights_operations")


def test_the_launchpad_starts_with_the_first_operation_and_describes_all() -> None:
    definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": None})
    snapshot = definitions.resolve_job_def("flights_operations").get_job_snapshot()
    schema = snapshot.config_schema_snapshot
    root = schema.get_config_snap(snapshot.mode_def_snaps[0].root_config_key or "")
    prefilled = yaml.safe_load(default_values_yaml_from_type_snap(schema, root))
    assert prefilled["ops"] == {
        "flights_operation": {"config": {"operation": {"diff": {"assets": []}}}}
    }
    described = dict[str, str | None]()
    for snap in schema.all_config_snaps_by_key.values():
        fields = snap.fields or []
        if snap.kind is ConfigTypeKind.SELECTOR and "diff" in {field.name for field in fields}:
            described = {field.name or "": field.description for field in fields}
    assert described.keys() == set(OPERATIONS)
    assert all(described.values())


def test_the_config_of_the_page_is_valid_and_that_of_another_operation_is_not() -> None:
    job = build_definitions(["tidemark_assets.flights"], {"tidemark": None}).resolve_job_def(
        "flights_operations"
    )
    [page] = [text for _, _, text in blocks("docs/dagster.md") if "flights_operation:" in text]
    config = yaml.safe_load(page)
    assert dg.validate_run_config(job, config)
    chosen = config["ops"]["flights_operation"]["config"]["operation"]
    chosen["correct"]["keep_backup"] = False
    with pytest.raises(dg.DagsterInvalidConfigError, match="unexpected config entry"):
        dg.validate_run_config(job, config)
    chosen["correct"] = {}
    chosen["nightly"] = {}
    with pytest.raises(dg.DagsterInvalidConfigError, match="only specify a single field"):
        dg.validate_run_config(job, config)


def test_the_launchpad_offers_the_assets_of_each_job() -> None:
    definitions = build_definitions(["tidemark_assets.flights"], {"tidemark": None})
    offered: dict[str, list[list[str]]] = {}
    for job in (j for j in definitions.jobs or [] if isinstance(j, dg.JobDefinition)):
        schema = job.get_job_snapshot().config_schema_snapshot.all_config_snaps_by_key
        for field in (f for snap in schema.values() for f in snap.fields or []):
            if field.name in ("asset", "assets"):
                kind = field.type_key.removeprefix("Noneable.").removeprefix("Array.")
                values = [v.value for v in schema[kind].enum_values or []]
                offered.setdefault(job.name, []).append(values)
    counted = ["departures_hourly", "aircraft_days", "departures_by_carrier", "carrier_months"]
    assert offered.keys() == {f"flights_{job}" for job in ("catch_up", "operations", "streams")}
    for choices in offered.values():
        for assets in choices:
            assert set(assets) & set(counted), offered
    with pytest.raises(
        dg.DagsterInvalidConfigError, match=r"not in enum type flights_assets_\w+ got departures"
    ):
        definitions.resolve_job_def("flights_catch_up").execute_in_process(
            run_config={"ops": {"flights_increments": {"config": {"assets": ["departures"]}}}}
        )


def test_a_changed_definition_changes_the_code_version() -> None:
    assert compute_fingerprint(departures_hourly) == compute_fingerprint(replace(departures_hourly))
    for changed in (
        replace(departures_hourly, keys=("carrier",)),
        replace(departures_hourly, allowed_lateness=0),
        replace(departures_hourly, expectations=()),
        replace(departures_hourly, expectations=(), aggregates={"flights": agg.count()}),
    ):
        assert compute_fingerprint(changed) != compute_fingerprint(departures_hourly)
    graph = build_definitions(Settings().domains, {"tidemark": None}).resolve_asset_graph()
    asset = graph.get(dg.AssetKey(departures_hourly.published_table))
    assert asset.code_version == compute_fingerprint(departures_hourly)


def test_partitions_of_an_unknown_asset_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(presentation, by_asset={"carrier_weeks": presentation.partitions})
    monkeypatch.setattr(flights_definitions, "presentation", wrong)
    with pytest.raises(DefinitionError, match=r"'carrier_weeks', which it does not define; it"):
        build_definitions(["tidemark_assets.flights"], {"tidemark": None})


DAYS = dg.DailyPartitionsDefinition("2026-01-01")
INVALID: list[tuple[Any, str]] = [
    (dg.StaticPartitionsDefinition(["a"]), r"must be time windows, .* \(got StaticPartitions"),
    (dg.DynamicPartitionsDefinition(name="days"), r"must be time windows"),
    (None, r"must be time windows, .* \(got None\)"),
    (
        dg.DailyPartitionsDefinition("2026-01-01", exclusions=["0 0 * * 6"]),
        r"have exclusions, so windows of the excluded times would be in no partition",
    ),
]


@pytest.mark.parametrize(("partitions", "message"), INVALID)
def test_partitions_that_do_not_contain_each_window_are_refused(
    partitions: Any,  # noqa: ANN401
    message: str,
) -> None:
    """An event at any time belongs to the windows of exactly one partition."""
    with pytest.raises(DefinitionError, match=message):
        DagsterOptions(partitions=partitions)
    with pytest.raises(DefinitionError, match=message):
        DagsterOptions(partitions=DAYS, by_asset={"months": partitions})


def test_an_external_asset_has_the_kind_of_its_connector(tmp_path: Path) -> None:
    connectors = {
        "file": FileConnector(READINGS, tmp_path),
        "kafka": KafkaConnector(READINGS, ["readings"], servers="127.0.0.1:1"),
        "deltalake": DeltaConnector(READINGS, str(tmp_path)),
    }
    for kind, connector in connectors.items():
        assert connector_asset(connector, AssetOptions()).kinds == {kind}


def test_automation_of_an_unknown_asset_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(presentation, automation={"carrier_weeks": dg.AutomationCondition.eager()})
    monkeypatch.setattr(flights_definitions, "presentation", wrong)
    with pytest.raises(DefinitionError, match=r"sets the automation for an asset 'carrier_w"):
        build_definitions(["tidemark_assets.flights"], {"tidemark": None})


def test_an_asset_links_to_its_transform_by_file_and_line() -> None:
    graph = build_definitions(["tidemark_assets.flights"], {"tidemark": None}).resolve_asset_graph()
    told = graph.get(dg.AssetKey(departures_hourly.published_table)).metadata[
        "dagster/code_references"
    ]
    assert isinstance(told, dg.CodeReferencesMetadataValue)
    [place] = told.code_references
    assert isinstance(place, dg.LocalFileCodeReference)
    lines = Path(place.file_path).read_text().splitlines()
    assert place.line_number is not None
    # The line is that of the decorator.
    there = "\n".join(lines[place.line_number - 1 :])
    assert there.startswith("@tm.windowed_asset(")
    assert there.partition("\ndef ")[2].startswith("departures_hourly(")


def test_a_domain_merges_with_definitions_that_have_an_executor() -> None:
    own = dg.Definitions(executor=dg.multiprocess_executor)
    domain = domain_definitions("tidemark_assets.weather", in_process=False)()
    merged = dg.Definitions.merge(domain, own)
    assert merged.executor is dg.multiprocess_executor
    dg.Definitions.validate_loadable(merged)


def test_column_lineage_ignores_case() -> None:
    shouted = replace(
        departures_hourly, aggregates={"delay": agg.mean("DEP_DELAY + dep_delay")}, expectations=()
    )
    deps = describe.lineage(shouted, PLAIN).deps_by_column["delay"]
    assert [dep.column_name for dep in deps] == ["dep_delay"]


def test_a_domain_without_dagster_options_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"has no presentation for Dagster"):
        build_definitions(["json"], {"tidemark": None})


def test_two_domains_with_the_same_table_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clashing").mkdir()
    (tmp_path / "clashing" / "__init__.py").touch()
    (tmp_path / "clashing" / "definitions.py").write_text(
        "import dagster as dg\n"
        "from tidemark.dagster import DagsterOptions\n"
        "days = dg.DailyPartitionsDefinition(start_date='2026-01-01')\n"
        "presentation = DagsterOptions(partitions=days)\n"
    )
    (tmp_path / "clashing" / "transforms.py").write_text(
        "from dataclasses import replace\n"
        "from helpers.data import support\n"
        "other = replace(support.PER_MINUTE, name='gated_quarantine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DefinitionError) as refused:
        build_definitions(["gated", "clashing"], {"tidemark": None})
    told = str(refused.value)
    assert "Table 'gated_quarantine' would be both" in told
    assert "\n" not in told
    assert refused.value.__cause__ is None
