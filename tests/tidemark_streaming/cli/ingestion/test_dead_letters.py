"""`tidemark dead-letters`: list, show and replay records that could not be decoded."""

import json
import os
import sys
from pathlib import Path

import pytest

from helpers.data.landing import HEADER, SOURCE, land, log_rows
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.monitor.page import create_page_data

FEED = """
from helpers.data.landing import connector, SOURCE
from tidemark_streaming.connector import Ingestion

ingestion = Ingestion(SOURCE, connector)
"""
ROWS = ["gibberish,a,0", "2023-11-14,a,1", "2023-11-14,a,x", "2023-11-14,a,y"]


@pytest.fixture(scope="module", autouse=True)
def domain(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> object:
    """Configure a domain whose landing folder has a file with malformed rows."""
    folder = tmp_path_factory.mktemp("domain")
    package = folder / "of_dead_letters"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "connectors.py").write_text(FEED)
    land(Path(here.landing) / SOURCE.name, "0.csv", HEADER + "".join(f"{r}\n" for r in ROWS), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
        patch.setenv("TIDEMARK_DOMAINS", package.name)
        assert "has no dead letters" in call("dead-letters", "list", "sensors").stderr
        ingested = json.loads(call("ingest", "sensors", "--json").stdout)
        assert (ingested["events"], ingested["dead_letters"]) == (1, 3)
        yield


def shown_live(watcher: Monitor, here: Settings) -> int:
    """Return the number of dead letters on the live page."""
    (source,) = create_page_data(watcher.read(), here.database, here.webserver_port)["sources"]
    return source["deadLetters"]


def told(*arguments: str) -> object:
    return json.loads(call("dead-letters", *arguments, "--json").stdout)


def test_dead_letters_are_counted_shown_and_replayed(
    here: Settings, warehouse: Warehouse, tmp_path: Path
) -> None:
    at, value = "The field 'at' is not a valid TIMESTAMP.", "The field 'value' is not a valid INT."
    day = {"day": "2023-11-14", "topic": None, "replayed": 0}
    assert told("list", "sensors") == [
        {**day, "reason": at, "letters": 1, "first": "0:0"},
        {**day, "reason": value, "letters": 2, "first": "0:2"},
    ]
    watcher = Monitor(Settings())
    (source,) = json.loads(call("status", "--json").stdout)["sources"]
    assert source["dead_letters"] == 3 == shown_live(watcher, here)
    assert "3 rows are not in the event log of sensors" in call("status").stdout
    listed = " ".join(call("dead-letters", "list", "sensors").stdout.split())
    assert "sensors: 3 dead letters" in listed
    shown = told("show", "sensors", "0:2")
    assert isinstance(shown, list)
    assert (shown[0]["bytes"], shown[0]["read_from"]) == (ROWS[2], "0.csv#2")
    assert "bytes 2023-11-14,a,x" in " ".join(
        call("dead-letters", "show", "sensors").stdout.split()
    )

    (tmp_path / "mended").write_text("2023-11-14,a,7")
    one = told("replay", "sensors", "0:2", "--payload-file", str(tmp_path / "mended"))
    assert one == {"source": "sensors", "letters": 1, "arrivals": [1], "refused": {}}
    again = call("dead-letters", "replay", "sensors", "0:2")
    assert again.exit_code == 2
    assert "were already ingested: 0:2 by arrival 1." in again.stderr
    rest = call(
        "dead-letters", "replay", "sensors", "--all", "--payload-command", "sed s/y/8/", "--json"
    )
    assert rest.exit_code == 1
    assert json.loads(rest.stdout)["refused"] == {"0:0": at}
    tables = Warehouse(warehouse.spark, here.warehouse, here.database, registered=False)
    assert [r[2] for r in log_rows(tables)] == [1, 7, 8]
    counts = told("list", "sensors")
    assert isinstance(counts, list)
    assert [(c["letters"], c["replayed"]) for c in counts] == [(1, 0), (2, 2)]
    assert "1 row is not in the event log of sensors" in call("status").stdout
    assert shown_live(watcher, here) == 1
    nothing = told("replay", "sensors", "--reason", "INT")
    assert nothing == {"source": "sensors", "letters": 0, "arrivals": [], "refused": {}}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["replay", "sensors"],
            "Specify which dead letters to replay: ARRIVAL:POSITION, --reason,",
        ),
        (["replay", "sensors", "0:0", "--all"], "Specify which dead letters to replay"),
        (["replay", "sensors", "first"], "'first' is not a dead letter: write ARRIVAL:POSITION"),
        (["show", "sensors", "9:9"], "'sensors' has no dead letter 9:9"),
        (
            ["replay", "sensors", "0:0", "--payload-file", "/nowhere"],
            "File '/nowhere' can't be read: no",
        ),
        (
            ["replay", "sensors", "0:0", "--payload-command", "exit 3"],
            "failed at dead letter 0:0 with exit",
        ),
        (["list", "flowers"], "no source 'flowers'"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], sentence: str) -> None:
    result = call("dead-letters", *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
