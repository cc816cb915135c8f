"""What Dagster is told of the engine: where things are, and no secret."""

import json
from pathlib import Path

import dagster as dg
import pytest

from tidemark.base.settings import Settings
from tidemark_assets.base.resources import Tidemark, TidemarkResource, resource
from tidemark_assets.component import WindowedDomains

SECRET = "not-to-be-seen"


def made(tidemark: Tidemark) -> TidemarkResource:
    """What a step gets, and nothing of whose run has the secret."""
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


def test_fields_are_shown_and_a_step_gets_what_they_say(
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
    assert got.landing == tmp_path / "landing"
    # The whole address is that of the settings, which Dagster is not told.
    assert got.remote == settings.remote


def test_a_token_is_told_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_TOKEN", SECRET)
    got = made(resource(Settings(home=tmp_path), "THEIR_TOKEN")).settings
    assert got.token is not None
    assert got.token.get_secret_value() == SECRET


def component(given: str, monkeypatch: pytest.MonkeyPatch) -> WindowedDomains:
    monkeypatch.setenv("THEIR_TOKEN", SECRET)
    monkeypatch.setenv("THEIR_DATABASE", "theirs")
    return WindowedDomains.resolve_from_yaml(given)


# Dagster's own reading of a component uses what pydantic calls deprecated.
@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
def test_a_component_takes_places_from_variables_and_the_tokens_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = component(
        "domains: [shop]\ndatabase: '{{ env.THEIR_DATABASE }}'\ntoken: '{{ env.THEIR_TOKEN }}'",
        monkeypatch,
    )
    assert (found.database, found.token, found.home) == ("theirs", "THEIR_TOKEN", None)
    assert SECRET not in json.dumps(found.model_dump())


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
def test_a_token_in_the_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="is a secret: give the variable that holds it") as told:
        component(f"domains: [shop]\ntoken: {SECRET}", monkeypatch)
    assert SECRET not in str(told.value)
