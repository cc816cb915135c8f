"""Records of mart builds, with a fake dbt that builds nothing, and the macros of marts."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from dbt.artifacts.schemas.results import NodeStatus
from hypothesis import given
from hypothesis import strategies as st

from helpers.dagster.built import leaving, unregistered
from helpers.processes.failing_engine import FAULTS, serve
from tidemark.base.errors import ConflictError, EngineLostError
from tidemark.base.settings import Settings, bundled_dbt_project
from tidemark.engine.channel import Channel, open_session
from tidemark.store.workers import hold
from tidemark.store.workers.owner import Owner, Process
from tidemark.store.workers.record import SECOND
from tidemark.store.workers.record_store import MART, records_of
from tidemark_streaming.dbt import mart_locks, marts
from tidemark_streaming.dbt.mart_locks import lock_marts
from tidemark_streaming.dbt.marts import Marts

WEEK = 7 * 86_400


def test_a_build_is_recorded_for_its_own_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases may share a home."""
    monkeypatch.setattr(marts, "run_dbt", leaving())
    one = Settings(home=tmp_path, database="one")
    other = one.model_copy(update={"database": "other"})
    Marts(one).build_marts(unregistered(), "sc://localhost:1", [])
    assert len(Marts(one).list_builds(0)) == 1
    assert Marts(other).list_builds(0) == []
    Marts(other).build_marts(unregistered(), "sc://localhost:1", [])
    assert len(Marts(one).list_builds(0)) == len(Marts(other).list_builds(0)) == 1


def test_a_build_record_survives_the_cleanup_of_old_project_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dbt's files of a project state are deleted after a week."""
    monkeypatch.setattr(marts, "run_dbt", leaving())
    settings = Settings(home=tmp_path)
    Marts(settings).build_marts(unregistered(), "sc://localhost:1", [])
    long_ago = time.time() - WEEK - 60
    for place in (settings.home / "marts").iterdir():
        os.utime(place, (long_ago, long_ago))
    Marts(settings).build_marts(unregistered(), "sc://localhost:1", [])
    again = settings.model_copy(update={"database": "other"})
    Marts(again).build_marts(unregistered(), "sc://localhost:1", [])
    assert len(Marts(settings).list_builds(0)) == 2


@pytest.mark.parametrize("status", [NodeStatus.Error, NodeStatus.Success])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_failed_build_is_the_loss_of_its_engine_if_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool, status: NodeStatus
) -> None:
    result = {"unique_id": "model.shop.m", "status": status, "execution_time": 1.0, "message": "?"}
    monkeypatch.setattr(marts, "run_dbt", leaving(result))
    project = Marts(Settings(home=tmp_path))
    with serve() as (engine, port):
        session = open_session(Channel(f"sc://127.0.0.1:{port}"))
        warehouse = unregistered(session)
        engine.fault = FAULTS["SESSION_NOT_FOUND"] if is_lost else None
        if is_lost and status is NodeStatus.Error:
            with pytest.raises(EngineLostError):
                project.build_marts(warehouse, "sc://localhost:1", [])
            assert project.list_builds(0) == []
        else:
            (outcome,) = project.build_marts(warehouse, "sc://localhost:1", [])
            assert outcome.status == status
            assert len(project.list_builds(0)) == 1
        client: Any = session
        client.client.close()


def test_dbt_ends_with_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marts, "_LOSS_POLL_SECONDS", 0.05)
    with (
        serve() as (engine, port),
        subprocess.Popen(["sleep", "600"]) as dbt,
        lock_marts(Settings(home=tmp_path), ["daily"]) as locks,
    ):
        session = open_session(Channel(f"sc://127.0.0.1:{port}"))
        with marts.killed_if_lost(dbt, partial(marts.has_lost_build, session, locks)):
            time.sleep(0.5)
            assert dbt.poll() is None
            engine.fault = FAULTS["SESSION_NOT_FOUND"]
            assert dbt.wait(60) == -signal.SIGKILL


def test_dbt_ends_if_another_machine_has_taken_over_a_mart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marts, "_LOSS_POLL_SECONDS", 0.05)
    monkeypatch.setattr(hold, "_RENEW_SECONDS", 0.05)
    settings = Settings(home=tmp_path)
    other = Owner("process 1 on elsewhere", Process("elsewhere", "another boot", 1, "long ago"))
    with (
        serve() as (_, port),
        subprocess.Popen(["sleep", "600"]) as dbt,
        lock_marts(settings, ["daily"]) as locks,
    ):
        session = open_session(Channel(f"sc://127.0.0.1:{port}"))
        with marts.killed_if_lost(dbt, partial(marts.has_lost_build, session, locks)):
            time.sleep(0.5)
            locks.raise_if_lost()
            assert dbt.poll() is None
            records_of(settings).change_record(
                MART, "daily", lambda record: record.owned_by(other, 60 * SECOND)
            )
            assert dbt.wait(60) == -signal.SIGKILL
        with pytest.raises(ConflictError, match="Another process builds mart 'daily'") as error:
            locks.raise_if_lost()
        assert error.value.retriable


def test_builds_that_name_marts_in_another_order_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hold, "_POLL_SECONDS", 0.01)
    settings = Settings(home=tmp_path)
    builds = list[str]()

    def build(order: Sequence[str]) -> None:
        for _ in range(5):
            with lock_marts(settings, order):
                builds.append("begin")
                time.sleep(0.05)
                builds.append("end")

    with ThreadPoolExecutor() as pool:
        for result in [pool.submit(build, order) for order in ("ab", "ba")]:
            result.result(60)
    assert builds == ["begin", "end"] * 10
    assert f"Waiting for process {os.getpid()}, which builds mart 'a'." in caplog.messages


def test_a_build_gives_up_after_a_long_build_of_the_same_mart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mart_locks, "MAX_SECONDS", 0.0)
    settings = Settings(home=tmp_path)
    with (
        lock_marts(settings, ["daily"]),
        lock_marts(settings, ["weekly"]),
        pytest.raises(ConflictError, match="which builds mart 'daily'") as error,
        lock_marts(settings, ["daily"]),
    ):
        pass
    assert error.value.retriable


def test_a_failed_mart_shows_the_violating_row_without_a_stack_trace() -> None:
    """The message begins with the query, which may have any length."""
    row = "violated by row with values: - day : 2013-02-20 - flights : -1"
    frames = "JVM stacktrace: org.apache.spark.SparkException at org.apache.spark." + "x" * 9000
    for query in ("", "select 1 " * 60, "select 1 " * 6000):
        message = f"Runtime Error in model daily {query}{row}. {frames}"
        said = marts.describe_failure([marts.Outcome("daily", "model", "error", 1.0, message)])
        assert said.startswith("Mart 'daily' failed: Runtime Error in model daily")
        assert said.endswith(f"{row}.")
        assert len(said) < 2100


@pytest.mark.parametrize("status", list(NodeStatus))
def test_each_status_of_dbt_is_a_success_or_a_failure(status: NodeStatus) -> None:
    """dbt-core 11114: a microbatch model with failed batches is a partial success."""
    found = marts.Outcome("daily", "model", status, 1.0, "a reason")
    good = {NodeStatus.Success, NodeStatus.Pass, NodeStatus.Warn, NodeStatus.NoOp}
    assert found.has_passed == (status in good)
    said = marts.describe_failure([found])
    # A model is skipped only if another one failed.
    assert bool(said) == (status not in {*good, NodeStatus.Skipped})


@pytest.mark.parametrize(
    ("kind", "what"), [("model", "Mart"), ("test", "Test"), ("operation", "Hook")]
)
def test_a_failure_names_what_failed(kind: str, what: str) -> None:
    """dbt-core 1024: a failed hook after the build is a failure of the build."""
    found = [
        marts.Outcome("a", "model", "success", 1.0, ""),
        marts.Outcome("b", kind, "error", 1.0, "no"),
    ]
    assert marts.describe_failure(found) == f"{what} 'b' failed: no."


def comment_queries(descriptions: dict[str, str]) -> list[str]:
    """Return the queries of the macro that writes the comments of a mart's columns."""
    queries = list[str]()
    project = bundled_dbt_project()
    assert project is not None
    environment = jinja2.Environment(extensions=["jinja2.ext.do"], autoescape=False)
    known: dict[str, Any] = {
        "adapter": SimpleNamespace(quote=lambda name: f"`{name}`"),
        "is_incremental": lambda: False,
        "run_query": queries.append,
    }
    code = (project / "macros" / "columns.sql").read_text()
    macros = environment.from_string(code, globals=known).module
    columns = {name: {"description": text} for name, text in descriptions.items()}
    getattr(macros, "spark__alter_column_comment")("marts.daily", columns)  # noqa: B009
    return queries


@given(st.text(st.sampled_from("ab'\\\n\"") | st.characters(codec="utf-8"), min_size=1))
def test_comments_of_columns_have_any_characters(text: str) -> None:
    (query,) = comment_queries({"day": text, "no-text": ""})
    literal = query.removeprefix("alter table marts.daily alter column `day` comment ")
    assert re.fullmatch(r"'(?:[^'\\]|\\.)*'", literal, re.DOTALL)
    assert re.sub(r"\\(.)", r"\1", literal[1:-1], flags=re.DOTALL) == text


def test_columns_without_descriptions_need_no_query() -> None:
    assert comment_queries({"day": "", "city": ""}) == []
