"""What is taken from Dagster that it does not promise to keep: a new version that changes it is
seen here first."""

import inspect
from functools import cached_property

import dagster as dg
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster_dbt import DbtCliResource

from tidemark_assets.marts import Dbt


def test_dagster_tells_the_code_version_of_a_materialization_by_the_tag_that_is_reported() -> None:
    @dg.asset(code_version="seven")
    def numbered() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([numbered], instance=instance).success
        event = instance.get_latest_materialization_event(numbered.key)
    assert event is not None
    assert event.asset_materialization is not None
    assert (event.asset_materialization.tags or {})[CODE_VERSION_TAG] == "seven"


def test_dagster_dbt_calls_what_is_replaced_of_it() -> None:
    source = inspect.getsource(DbtCliResource)
    for name in ("_cli_version", "_initialize_dbt_core_adapter"):
        ours, theirs = vars(Dbt)[name], vars(DbtCliResource)[name]
        assert isinstance(ours, cached_property) == isinstance(theirs, cached_property | property)
        assert source.count(f"self.{name}") >= 1, name
