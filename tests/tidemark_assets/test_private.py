"""Test the private parts of Dagster that Tidemark uses, which a new version may change."""

import inspect
from functools import cached_property

import dagster as dg
from dagster._core.definitions.data_version import CODE_VERSION_TAG, DATA_VERSION_TAG
from dagster_dbt import DbtCliResource

from helpers.data.support import PER_MINUTE
from tidemark_assets.base.names import PLAIN
from tidemark_assets.marts import Dbt
from tidemark_assets.metadata.provenance import provenance_tags


def test_dagster_stores_the_code_version_in_the_expected_tag() -> None:
    @dg.asset(code_version="seven")
    def numbered() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([numbered], instance=instance).success
        event = instance.get_latest_materialization_event(numbered.key)
    assert event is not None
    assert event.asset_materialization is not None
    assert (event.asset_materialization.tags or {})[CODE_VERSION_TAG] == "seven"


def test_dagster_stores_provenance_in_the_expected_tags() -> None:
    found: list[dict[str, str]] = []

    @dg.asset
    def readings_log() -> None: ...

    @dg.asset(deps=[readings_log], code_version="seven")
    def per_minute() -> None: ...

    @dg.op
    def look(context: dg.OpExecutionContext) -> None:
        found.append(provenance_tags(context, PLAIN, PER_MINUTE, "seven", "a run"))

    @dg.job
    def looks() -> None:
        look()

    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([readings_log, per_minute], instance=instance)
        looks.execute_in_process(instance=instance)
        event = instance.get_latest_materialization_event(per_minute.key)
    assert event is not None
    assert event.asset_materialization is not None
    own = event.asset_materialization.tags or {}
    # Dagster computes the data version of a step's own materialization.
    assert found[0].pop(DATA_VERSION_TAG) == "a run"
    assert DATA_VERSION_TAG in own
    assert len(found[0]) == 3
    assert found[0].items() <= own.items()


def test_the_asset_graph_lists_checks_for_the_alarm_recipe() -> None:
    @dg.asset_check(asset="numbered")
    def counts() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    repository = dg.Definitions(asset_checks=[counts]).get_repository_def()
    context = dg.build_sensor_context(repository_def=repository)
    assert context.repository_def is not None
    assert set(context.repository_def.asset_graph.asset_check_keys) == set(counts.check_keys)


def test_dagster_dbt_still_calls_the_overridden_members() -> None:
    source = inspect.getsource(DbtCliResource)
    for name in ("_cli_version", "_initialize_dbt_core_adapter"):
        ours, theirs = vars(Dbt)[name], vars(DbtCliResource)[name]
        assert isinstance(ours, cached_property) == isinstance(theirs, cached_property | property)
        assert source.count(f"self.{name}") >= 1, name
