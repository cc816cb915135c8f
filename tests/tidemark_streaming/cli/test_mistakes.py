"""User errors give one message on stderr and exit code 2, before any request to the engine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.data.warehouses import warehouse_without_engine
from helpers.processes.commands import call
from tidemark.base.errors import DataError, EngineLostError
from tidemark.base.settings import Settings
from tidemark_assets.flights.sources import flights
from tidemark_streaming.cli.context import Home
from tidemark_streaming.ingest.ingest_record import lock_ingest, record_error

pytestmark = pytest.mark.usefixtures("nowhere")
ASSET = "departures_hourly"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "nothing"], "There is no asset 'nothing'. Available: aircraft_days, "),
        (["backfill", "nothing"], "There is no asset 'nothing'. Available: aircraft_days, "),
        (["stream", "nothing"], "There is no asset 'nothing'. Available: aircraft_days, "),
        (["parity", "nothing"], "There is no asset 'nothing'. Available: aircraft_days, "),
        (["ingest", "trains"], "There is no source 'trains'. Available: flights, weather."),
        (
            ["watermark", "trains", "--recommend"],
            "There is no source 'trains'. Available: flights, weather.",
        ),
        (["backfill", ASSET, "--from", "2013-13-01"], "'2013-13-01' is not a date or time"),
        (["parity", ASSET, "--to", "yesterday"], "'yesterday' is not a date or time"),
        (
            ["ingest", "flights", "--recorded", "--arrived-from", "soon"],
            "'soon' is not a date or time",
        ),
        (
            ["backfill", ASSET, "--from", "2013-02-01", "--to", "2013-02-01"],
            "The range from 2013-02-01T00:00:00Z to 2013-02-01T00:00:00Z is empty",
        ),
        (
            ["ingest", "flights", "--recorded", "--days", "3", "--arrived-to", "2013-02-01"],
            "--days or --arrived-to, not both",
        ),
        (
            [
                "ingest",
                "flights",
                "--recorded",
                "--arrived-from",
                "2013-02-01",
                "--arrived-to",
                "2013-01-01",
            ],
            "--arrived-to must be after --arrived-from",
        ),
        (
            ["ingest", "flights", "--recorded", "--bulk", "--speed", "10"],
            "can't be used with --speed",
        ),
        (["ingest", "flights", "--recorded", "--follow"], "--recorded can't be used with --follow"),
        (["ingest", "flights", "--days", "3"], "and --span require --recorded: they choose"),
        (
            ["ingest", "trains", "--recorded"],
            "There is no source 'trains'. Available: flights, weather.",
        ),
        (["ingest", "flights"], "yet: `tidemark ingest flights --recorded` loads its recording."),
        (
            ["ingest", "flights", "--follow", "--bulk"],
            "already commits all pending arrivals together: omit --bulk.",
        ),
        (
            ["ingest", "flights", "--recorded", "--speed", "0"],
            "speed must be greater than zero (got 0).",
        ),
        (
            ["ingest", "flights", "--recorded", "--span", "7 hours"],
            "span must divide a day or be whole days (got",
        ),
        (
            ["watermark", "flights", "--recommend", "--target", "5"],
            "must be at least 0 and less than 1 (got 5.0).",
        ),
        (["watermark", "flights", "--recommend", "--lower"], "--lower or --recommend, not both."),
        (["watermark", "flights", "--target", "0.1"], "--target requires --recommend"),
        (["new", "shop", "--from-csv", "nothing.csv"], "There is no file 'nothing.csv'."),
        (["run", ASSET], "No engine answers at sc://localhost:1"),
    ],
)
def test_a_user_error_is_one_message_on_stderr(arguments: list[str], sentence: str) -> None:
    result = call(*arguments)
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert sentence in said
    assert said.startswith("error: ")
    assert said.endswith(".")
    assert result.stdout == ""


def test_commands_outside_a_project_folder_give_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_DOMAINS", raising=False)
    hint = "There is no tidemark.toml in this folder: run the commands of a project in its folder."
    assert hint in " ".join(call("ingest", "orders").stderr.split())
    Path("tidemark.toml").touch()
    assert hint not in " ".join(call("ingest", "orders").stderr.split())


@pytest.mark.parametrize("asked", [["--", "--help"], ["--", "build", "--help"], ["test", "--help"]])
def test_help_for_dbt_needs_no_engine(asked: list[str]) -> None:
    script = Path(sys.executable).with_name("tidemark")
    told = subprocess.run([script, "dbt", *asked], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "Usage: dbt" in told.stdout


def test_a_source_without_a_recording_cannot_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = tmp_path / f"live_{tmp_path.name}"
    domain.mkdir()
    (domain / "__init__.py").touch()
    (domain / "connectors.py").write_text(LIVE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_DOMAINS", domain.name)
    result = call("ingest", "readings", "--recorded", "--days", "3")
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == (
        "error: Source 'readings' has no recording: `tidemark ingest readings` "
        "ingests its pending data."
    )
    # An ingest continues to the engine, which is not running here.
    assert "No engine answers" in call("ingest", "readings", "--bulk").stderr


LIVE = """
from helpers.data.support import READINGS
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector

readings = Ingestion(source=READINGS, connector=lambda folder: FileConnector(READINGS, folder))
"""


def test_an_invalid_setting_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_ENGINE_PORT", "many")
    result = call("status")
    assert result.exit_code == 2
    assert "Setting engine_port" in result.stderr


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [
        ("nowhere", "There is no domain package 'nowhere': correct the setting domains (in "),
        ("json", "Domain 'json' does not specify how it appears in Dagster: add a module"),
        (
            "tidemark_assets,tidemark_assets",
            "The modules tidemark_assets.definitions and tidemark_assets.definitions would both",
        ),
    ],
)
def test_up_refuses_domains_that_cannot_be_code_locations(
    domains: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", domains)
    monkeypatch.delenv("TIDEMARK_REMOTE")
    result = call("up")
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert not (Settings().home / "logs").exists()


def test_status_works_without_processes_and_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_REMOTE")
    found = json.loads(call("status", "--json").stdout)
    assert [p["running"] for p in found["processes"]] == [False] * 4
    assert found["sources"][0]["arrivals"] == 0
    assert found["assets"][0]["as_of"] == -1
    assert "Nothing is running" in call("status").stderr


def test_status_shows_why_a_source_is_blocked() -> None:
    """An ingest was refused, and waits for an operator."""
    settings = Settings()
    warehouse = warehouse_without_engine(settings)
    with pytest.raises(DataError), lock_ingest(warehouse, flights) as held, record_error(held):
        raise DataError("File '[b].csv' of source 'flights' can't be read.")
    shown = " ".join(call("status").stdout.split())
    assert "flights is blocked: File '[b].csv' of source 'flights' can't be read." in shown
    (finding,) = json.loads(call("status", "--json").stdout)["findings"]
    assert (finding["kind"], finding["node"]) == ("blocked_source", "source flights")
    with lock_ingest(warehouse, flights) as held, record_error(held):
        pass
    assert "is blocked" not in call("status").stdout


def test_down_reports_that_nothing_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_REMOTE")
    result = call("down")
    assert result.exit_code == 0
    assert "Nothing is running" in result.stderr


def test_the_command_line_loads_without_pyspark_and_pandas() -> None:
    code = "import sys, tidemark_streaming.cli as c; print(*{'pyspark', 'pandas'} & {*sys.modules})"
    began = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    assert said.split() == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("remote", "restart"),
    [
        ("", "Its log file is in '{logs}'. Run the command again: it starts the engine"),
        ("sc://spark.example:15002/;token=secret", "as soon as the engine at {place} answers."),
    ],
    ids=["its own", "elsewhere"],
)
def test_a_lost_engine_is_one_message_that_names_the_engine(
    monkeypatch: pytest.MonkeyPatch, remote: str, restart: str
) -> None:
    def lose(*_: object, **__: object) -> None:
        raise EngineLostError

    if remote:
        monkeypatch.setenv("TIDEMARK_REMOTE", remote)
    else:
        monkeypatch.delenv("TIDEMARK_REMOTE")
    monkeypatch.setattr(Home, "find_damage", lose)
    result = call("fsck")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert said.startswith("error: The engine has exited, or lost this session. ")
    place = "sc://spark.example:15002"
    assert restart.format(logs=Settings().home / "logs", place=place) in said
    assert "secret" not in said
