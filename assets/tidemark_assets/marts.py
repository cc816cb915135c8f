"""The marts in Dagster: the models of the dbt project as assets, and its tests as checks.

A source of the dbt project is a table. Dagster shows it as the asset of that table. For a side
table, this is the asset to which the side table belongs. Lineage therefore leads from the external
system through the event log and the windows to the marts.

dbt and `tidemark_streaming.dbt.marts` run the build; this module defines how Dagster shows it.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext
from dagster_dbt import (
    DagsterDbtTranslator,
    DagsterDbtTranslatorSettings,
    DbtCliResource,
    DbtProject,
    dbt_assets,
)
from packaging.version import Version, parse

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.engine.loss import raise_if_lost
from tidemark_assets.base.names import PLAIN, Names, with_prefix
from tidemark_assets.base.resources import TidemarkResource, resource
from tidemark_assets.base.steps import failing_with_message
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick, create_sensor
from tidemark_assets.tables.windows import CARRY_ON
from tidemark_streaming.dbt import marts
from tidemark_streaming.dbt.dbt_process import dbt_flags
from tidemark_streaming.dbt.mart_locks import MartLocks, lock_marts
from tidemark_streaming.dbt.marts import Build, Marts
from tidemark_streaming.home import domains
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.home.orchestrator import ENGINE_POOL


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the marts as a code location."""
    settings = Settings()
    assets = mart_assets(settings)
    return dg.Definitions(
        assets=assets,
        sensors=[mart_sensor(settings, mart) for mart in assets],
        resources={"tidemark": resource(settings)},
        executor=dg.in_process_executor,
    )


def mart_sensor(
    settings: Settings, assets: dg.AssetsDefinition, names: Names = PLAIN
) -> dg.SensorDefinition:
    """Return the sensor that reports the builds of these marts by `tidemark dbt build`."""
    description = (
        "Reports the marts that `tidemark dbt build` built, and the results of their tests. It "
        "launches nothing."
    )
    parts = [builds_reporter(Marts(settings), assets)]
    return create_sensor(names, "marts_reports", description, parts, needs=frozenset())


def mart_assets(settings: Settings, key_prefix: str | None = None) -> list[dg.AssetsDefinition]:
    """Return the assets of the settings' dbt project; none without a project.

    Args:
        key_prefix: as for `build_definitions`, for marts and the windows that they read.
    """
    if not marts.has_project(settings):
        return []
    project = Marts(settings)
    names = with_prefix(key_prefix)
    manifest = project.manifest
    _check_model_names(manifest, domains.load_importable(settings.domains))
    _check_test_names(manifest)
    dbt_project = DbtProject(
        project.folder, target_path=project.target_folder, profiles_dir=project.profiles_folder
    )

    @dbt_assets(
        manifest=manifest,
        name=names.own("marts"),
        dagster_dbt_translator=MartTranslator(key_prefix),
        project=dbt_project,
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def build(context: AssetExecutionContext) -> Iterator[Any]:
        tidemark = names.tidemark(context)
        with failing_with_message():
            yield from _build(context, project, tidemark)

    return [build]


def _check_model_names(manifest: Mapping[str, Any], domains: Domains) -> None:
    """Refuse a model with the name of an asset, because Dagster would show both as one asset."""
    logs = {source.log_table for source in domains.all_sources()}
    assets = {*domains.transforms, *logs}
    for node in manifest["nodes"].values():
        if node["resource_type"] == "model" and node["name"] in assets:
            raise DefinitionError(
                f"Model '{node['name']}' in {node['original_file_path']} has the name of an asset, "
                "and Dagster would show them as one: rename the model or the asset."
            )


def _check_test_names(manifest: Mapping[str, Any]) -> None:
    """Refuse tests of a model that share a name. Dagster would have one check for such tests, and
    fail when each of them reports a result. dbt distinguishes them by a hash of their arguments."""
    nodes = manifest["nodes"]
    tests = [node for node in nodes.values() if node["resource_type"] == "test"]
    counts = Counter((test["attached_node"], test["name"]) for test in tests)
    for test in tests:
        model = test["attached_node"]
        name = test["name"]
        if model is not None and counts[model, name] > 1:
            raise DefinitionError(
                f"Model '{model.rpartition('.')[2]}' has {counts[model, name]} tests named "
                f"'{name}' in {test['original_file_path']}, and Dagster distinguishes tests by "
                "name: give each of them a `name:` of its own."
            )


def _build(
    context: AssetExecutionContext, project: Marts, tidemark: TidemarkResource
) -> Iterator[Any]:
    selected = {key.path[-1] for key in context.selected_asset_keys}
    missing = project.find_missing_tables(tidemark.warehouse.has_table)
    passed_over = sorted(selected & missing.keys())
    if not selected - missing.keys():
        marts.raise_if_any(marts.describe_missing_table(missing, passed_over))
    written = project.find_written_tables(selected - missing.keys()) & selected
    with lock_marts(tidemark.settings, written) as locks:
        tidemark.warehouse.register_missing_tables()
        yield from _run_dbt(context, project, tidemark, missing, locks)


def _run_dbt(
    context: AssetExecutionContext,
    project: Marts,
    tidemark: TidemarkResource,
    missing: Mapping[str, list[str]],
    locks: MartLocks,
) -> Iterator[Any]:
    """Build the selected models with dbt, except those that lack a table.

    Args:
        missing: the tables that models lack, by the model's name.
    """
    selected = {key.path[-1] for key in context.selected_asset_keys}
    passed_over = sorted(selected & missing.keys())
    dbt = Dbt(
        project_dir=str(project.folder),
        profiles_dir=str(project.profiles_folder),
        dbt_executable=sys.executable,
        global_config_flags=dbt_flags(),
    )
    session = tidemark.session
    is_lost = partial(marts.has_lost_build, session, locks)
    try:
        with _variables(project.environment_variables(tidemark.address)):
            views = project.find_views(selected - missing.keys()) - selected
            if views:
                run = dbt.cli(["run", "--select", " ".join(sorted(views))])
                with marts.killed_if_lost(run.process, is_lost):
                    run.wait()
            exclude = [part for name in passed_over for part in ("--exclude", name)]
            build = dbt.cli(
                ["build", *marts.NO_UNIT_TESTS, *exclude],
                context=context.op_execution_context,
                raise_on_error=False,
            )
        with marts.killed_if_lost(build.process, is_lost):
            yield from build.stream()
        try:
            results = marts.read_outcomes(build.target_path)
        finally:
            shutil.rmtree(build.target_path, ignore_errors=True)
        marts.raise_if_any(
            marts.describe_missing_table(missing, passed_over), marts.describe_failure(results)
        )
    except Exception:
        locks.raise_if_lost()
        # dbt reports the loss of the engine in many ways, most of them as failed models.
        raise_if_lost(session)
        raise


class MartTranslator(DagsterDbtTranslator):
    """The appearance of the project's models: keys, groups by folder, kinds.

    Args:
        key_prefix: as for `build_definitions`.
    """

    def __init__(self, key_prefix: str | None = None) -> None:
        # A side table is not a separate asset, so it shares the key of the asset of its windows.
        super().__init__(DagsterDbtTranslatorSettings(enable_duplicate_source_asset_keys=True))
        self._names = with_prefix(key_prefix)

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        props = dbt_resource_props
        if props["resource_type"] == "source":
            return self._names.key(props["config"]["meta"].get("asset") or props["identifier"])
        return self._names.key(props["name"])

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str | None:
        if dbt_resource_props["resource_type"] == "source":
            return None
        return self._names.own(dbt_resource_props["fqn"][1])

    def get_automation_condition(
        self, dbt_resource_props: Mapping[str, Any]
    ) -> dg.AutomationCondition[dg.AssetKey] | None:
        return CARRY_ON

    def get_asset_spec(
        self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None
    ) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        props = self.get_resource_props(manifest, unique_id)
        kind = "view" if props["config"].get("materialized") == "view" else "deltalake"
        return spec.replace_attributes(kinds={"dbt", "spark", kind})


class Dbt(DbtCliResource):
    """The dbt command, without two slow steps that dagster-dbt takes before each call.

    The steps are `dbt --version`, which also queries the package index, and the creation of an
    adapter in this process.
    """

    @cached_property
    def _cli_version(self) -> Version:
        return parse(version("dbt-core"))

    def _initialize_dbt_core_adapter(self, args: object) -> Any:  # noqa: ANN401 (optional there)
        return None


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process for the duration of a `with` block.

    dbt's process inherits them.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def builds_reporter(project: Marts, assets: dg.AssetsDefinition) -> SensorPart:
    """Return the reporter of the builds of these marts by `tidemark dbt build`."""

    def report(tick: Tick) -> PartResult:
        through: dict[str, int] = tick.memory or {}
        new = project.list_builds(through.get(project.database, 0))
        events = [event for build in new for event in _build_events(build, assets)]
        if new:
            through[project.database] = new[-1].at
        summary = f"Reported {len(events)} marts and tests." if events else "No new builds."
        return PartResult(summary, events, through)

    return SensorPart("builds", report)


def _build_events(
    build: Build, assets: dg.AssetsDefinition
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield an event for each model that was built successfully, and for each test that ran.

    Models and tests that no longer exist are left out.
    """
    keys = {k.path[-1]: k for k in assets.keys}
    tests = {k.name: k for k in assets.check_keys}
    for outcome in build.outcomes:
        if outcome.kind == "model" and outcome.has_passed and outcome.name in keys:
            took = dg.MetadataValue.float(outcome.seconds)
            metadata = {"made by": "the command line", "Execution Duration": took}
            yield dg.AssetMaterialization(keys[outcome.name], metadata=metadata)
        elif outcome.kind == "test" and outcome.status != "skipped" and outcome.name in tests:
            check = tests[outcome.name]
            warned = outcome.status == "warn"
            yield dg.AssetCheckEvaluation(
                asset_key=check.asset_key,
                check_name=check.name,
                passed=outcome.status == "pass",
                severity=dg.AssetCheckSeverity.WARN if warned else dg.AssetCheckSeverity.ERROR,
                metadata={"made by": "the command line", "dbt says": outcome.message or "nothing"},
            )
