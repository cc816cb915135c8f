"""Notes of builds, with a dbt that builds nothing."""

import os
import time
from pathlib import Path

import pytest

from helpers.dagster.built import leaving
from tidemark.base.settings import Settings
from tidemark_streaming.dbt import marts
from tidemark_streaming.dbt.marts import Marts

WEEK = 7 * 86_400


def test_a_build_is_noted_for_its_own_database(
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


def test_a_note_outlives_another_state_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What dbt made of a project is removed after a week."""
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


def test_a_mart_that_fails_shows_the_row_at_fault_and_no_stack_trace() -> None:
    """However long the query is that the message begins with."""
    row = "violated by row with values: - day : 2013-02-20 - flights : -1"
    frames = "JVM stacktrace: org.apache.spark.SparkException at org.apache.spark." + "x" * 9000
    for query in ("", "select 1 " * 60, "select 1 " * 6000):
        message = f"Runtime Error in model daily {query}{row}. {frames}"
        said = marts.failed([marts.Outcome("daily", "model", "error", 1.0, message)])
        assert said.startswith("Mart 'daily' failed: Runtime Error in model daily")
        assert said.endswith(f"{row}.")
        assert len(said) < 2100
