"""`tidemark dbt build` and other dbt commands: their error messages and the arguments for dbt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.processes.commands import call
from tidemark.base.settings import Settings


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "There is no mart 'nothing'. Available: aircraft_utilisation, "),
        ([], "'aircraft_utilisation' reads the table 'aircraft_days', which does not exist yet: "),
        (["daily_punctuality"], "first materialize 'departures_by_carrier' (`tidemark run "),
    ],
)
@pytest.mark.usefixtures("here")
def test_unknown_marts_and_missing_tables_are_reported(arguments: list[str], sentence: str) -> None:
    result = call("dbt", "build", *arguments)
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert sentence in said
    assert said.endswith(".")
    assert result.stdout == ""


@pytest.mark.usefixtures("nowhere")
def test_a_missing_dbt_project_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_MARTS", str(tmp_path))
    for command in ("build", "ls"):
        result = call("dbt", command)
        assert result.exit_code == 2
        assert "error: There is no dbt project in" in result.stderr


# Starts dbt.
@pytest.mark.slow
def test_dbt_receives_its_arguments_unchanged(here: Settings) -> None:
    tidemark = Path(sys.executable).with_name("tidemark")
    told = subprocess.run(
        [tidemark, "dbt", "ls", "--resource-type", "exposure", "--quiet"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "exposure:tidemark.punctuality_report" in told.stdout.split()
