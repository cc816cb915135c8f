"""Records of mart builds, with a fake dbt that builds nothing."""

import os
import time
from pathlib import Path

import pytest

from helpers.dagster.built import leaving
from tidemark.base.settings import Settings
from tidemark_streaming.dbt import marts
from tidemark_streaming.dbt.marts import Marts

WEEK = 7 * 86_400


def test_a_build_is_recorded_for_its_own_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two databases may share a home."""
    monkeypatch.setattr(marts, "run", leaving())
    one = Settings(home=tmp_path, database="one")
    other = one.model_copy(update={"database": "other"})
    Marts(one).build("sc://localhost:1", [])
    assert len(Marts(one).builds(0)) == 1
    assert Marts(other).builds(0) == []
    Marts(other).build("sc://localhost:1", [])
    assert len(Marts(one).builds(0)) == len(Marts(other).builds(0)) == 1


def test_a_build_record_survives_the_cleanup_of_old_project_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dbt's files of a project state are deleted after a week."""
    monkeypatch.setattr(marts, "run", leaving())
    settings = Settings(home=tmp_path)
    Marts(settings).build("sc://localhost:1", [])
    long_ago = time.time() - WEEK - 60
    for place in (settings.home / "marts").iterdir():
        os.utime(place, (long_ago, long_ago))
    Marts(settings).build("sc://localhost:1", [])
    again = settings.model_copy(update={"database": "other"})
    Marts(again).build("sc://localhost:1", [])
    assert len(Marts(settings).builds(0)) == 2


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
