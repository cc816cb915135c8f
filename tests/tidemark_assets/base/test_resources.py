"""Test the resource in Dagster: it shows addresses and paths but never a secret."""

import json
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

from helpers.processes.failing_engine import FAULTS, serve
from tidemark.base.settings import Settings
from tidemark.store.catalog import Catalog
from tidemark_assets.base import steps
from tidemark_assets.base.resources import Tidemark, TidemarkResource, resource
from tidemark_assets.base.steps import failing_with_message
from tidemark_assets.component import WindowedDomains

SECRET = "not-to-be-seen"


def made(tidemark: Tidemark) -> TidemarkResource:
    """Return the resource that a step gets. Assert that its run does not contain the secret."""
    got: list[TidemarkResource] = []

    @dg.op
    def look(tidemark: dg.ResourceParam[TidemarkResource]) -> None:
        got.append(tidemark)

    @dg.job
    def job() -> None:
        look()

    definitions = dg.Definitions(jobs=[job], resources={"tidemark": tidemark})
    with dg.DagsterInstance.ephemeral() as instance:
        done = definitions.resolve_job_def("job").execute_in_process(instance=instance)
        told = [str(event) for event in instance.all_logs(done.run_id)]
    snapshot = definitions.resolve_job_def("job").get_job_snapshot()
    assert SECRET not in "".join((str(told), str(snapshot), repr(tidemark)))
    return got[0]


def test_a_step_gets_the_settings_that_the_resource_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_REMOTE", f"sc://host:15002/;token={SECRET}")
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    settings = Settings(home=tmp_path / "here", database="theirs", engine_port=15102)
    tidemark = resource(settings)
    shown = (tidemark.home, tidemark.database, tidemark.remote, tidemark.token)
    assert shown == (str(tmp_path / "here"), "theirs", "sc://host:15002", None)
    got = made(tidemark).settings
    assert (got.home, got.database, got.engine_port) == (settings.home, "theirs", 15102)
    assert got.landing == str(tmp_path / "landing")
    # The full address, with its token, stays in the settings and is not shown to Dagster.
    assert got.remote == settings.remote


def test_a_token_is_read_from_its_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_TOKEN", SECRET)
    got = made(resource(Settings(home=tmp_path), "THEIR_TOKEN")).settings
    assert got.token is not None
    assert got.token.get_secret_value() == SECRET


def component(given: str, monkeypatch: pytest.MonkeyPatch) -> WindowedDomains:
    monkeypatch.setenv("THEIR_TOKEN", SECRET)
    monkeypatch.setenv("THEIR_DATABASE", "theirs")
    return WindowedDomains.resolve_from_yaml(given)


# Dagster's own component loader uses a deprecated pydantic function.
@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
def test_a_component_resolves_variables_but_keeps_the_token_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = component(
        "domains: [shop]\ndatabase: '{{ env.THEIR_DATABASE }}'\ntoken: '{{ env.THEIR_TOKEN }}'",
        monkeypatch,
    )
    assert (found.database, found.token, found.home) == ("theirs", "THEIR_TOKEN", None)
    assert SECRET not in json.dumps(found.model_dump())


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
def test_a_token_in_the_component_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="is a secret, so it must refer to an environment") as told:
        component(f"domains: [shop]\ntoken: {SECRET}", monkeypatch)
    assert SECRET not in str(told.value)


@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_whose_engine_is_lost_is_retried_with_a_new_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Dagster retries the step in the same process, with the same resource."""
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0, 0, 0))
    # Sessions of earlier tests would be found.
    monkeypatch.setattr(ConnectSession, "_default_session", None)
    monkeypatch.setattr(ConnectSession, "_active_session", threading.local())
    # The engine of this test answers no query.
    monkeypatch.setattr(Catalog, "check_location", lambda _: None)
    sessions: list[str] = []

    with serve() as (engine, port):

        @dg.op
        def work(context: dg.OpExecutionContext, tidemark: dg.ResourceParam[Any]) -> None:
            with failing_with_message():
                engine.fault = None
                spark = tidemark.warehouse.spark
                spark.client.set_retry_policies([DefaultPolicy(max_retries=1)])
                sessions.append(spark.session_id)
                engine.fault = FAULTS[fault] if context.retry_number == 0 else None
                spark.conf.set("some.setting", "1")

        @dg.job
        def job() -> None:
            work()

        settings = Settings(home=tmp_path, remote=f"sc://localhost:{port}")
        resources = {"tidemark": TidemarkResource(settings)}
        monkeypatch.setattr(TidemarkResource, "address", f"sc://127.0.0.1:{port}")
        assert job.execute_in_process(resources=resources, raise_on_error=False).success
        assert len({*sessions}) == len(sessions) == 2
