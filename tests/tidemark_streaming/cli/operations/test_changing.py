"""`tidemark backfill`, `diff` and `rebuild` from the command line, and their error messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.runs import left_behind
from helpers.data.support import PER_MINUTE, READINGS, ingest, some_arrivals
from helpers.processes.commands import call
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.run.change import rebuild
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

EARLIER = "from helpers.data.support import PER_MINUTE"
LATER = """
from dataclasses import replace
from helpers.data import support
from tidemark import Tumbling

per_minute = replace(support.PER_MINUTE, window=Tumbling("2 minutes"))
"""
ARRIVALS = some_arrivals(count=5, size=20)


def define(folder: Path, patch: pytest.MonkeyPatch, text: str) -> None:
    """Configure a domain with these transforms."""
    package = folder / f"domain_{uuid4().hex[:8]}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "transforms.py").write_text(text)
    patch.syspath_prepend(folder)
    patch.setenv("TIDEMARK_DOMAINS", package.name)


@pytest.fixture(scope="module")
def store(
    here: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    """Yield the tables of `per_minute` through its fourth arrival. The tests change them in
    order."""
    store = Warehouse(spark, here.warehouse, here.database, registered=False)
    ingest(store, READINGS, ARRIVALS[:4], ends=False)
    incremental(store, PER_MINUTE)
    with pytest.MonkeyPatch.context() as patch:
        define(tmp_path_factory.mktemp("domain"), patch, EARLIER)
        yield store


def told(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    """Return the error message of a command that fails and prints nothing else."""
    result = call(*arguments)
    said = " ".join(result.stderr.split())
    assert (result.exit_code, result.stdout) == (2, "")
    return said[said.index("error: ") :]


def test_a_replay_writes_the_table_or_a_separate_one(store: Warehouse) -> None:
    version = store.newest_version(PER_MINUTE.published_table)
    at = Log(store, READINGS).read_timeline()[2].arrived_at
    beside = told(
        "backfill", "per_minute", "--arrived-from", str(format_instant(at)), "--into", "tried"
    )
    assert (beside["table"], beside["since"], beside["through"]) == ("per_minute__tried", 2, 3)
    assert len(store.load_rows("per_minute__tried")) == beside["windows"] > 0
    assert store.newest_version(PER_MINUTE.published_table) == version
    said = call("backfill", "per_minute", "--since-arrival", "2")
    assert "arrivals 2 to 3" in " ".join(said.stdout.split())
    assert store.newest_version(PER_MINUTE.published_table) == version + 1
    gone = told("backfill", "per_minute", "--into", "tried", "--discard")
    assert gone["asset"] == "per_minute"
    assert "per_minute__tried" in gone["discarded"]
    assert not store.has_table("per_minute__tried")
    assert "'readings' has no arrival 9: its newest arrival is 3" in refused(
        "backfill", "per_minute", "--since-arrival", "9"
    )


# Several commands and a rebuild.
@pytest.mark.slow
def test_promoting_over_a_killed_run_requires_no_backup(
    store: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(store, READINGS, ARRIVALS[4:], ends=False)
    left_behind(store, PER_MINUTE, monkeypatch)
    monkeypatch.setattr(rebuild, "_PUBLISH_WAIT_SECONDS", 0.1)
    define(tmp_path, monkeypatch, LATER)
    assert "There is nothing to promote" in refused("rebuild", "per_minute", "--promote")
    made = told("rebuild", "per_minute")
    assert (made["through"], made["windows"]) == (4, len(store.load_rows("per_minute__rebuild")))
    version = store.newest_version(PER_MINUTE.published_table)
    sentence = refused("rebuild", "per_minute", "--promote")
    killed = State(store, PER_MINUTE).read_last_commit().commit_number
    assert f"commit {killed}, is not completely published" in sentence
    assert (
        "`tidemark rebuild per_minute --promote --no-backup` promotes without a backup." in sentence
    )
    assert store.newest_version(PER_MINUTE.published_table) == version
    done = told("rebuild", "per_minute", "--promote", "--no-backup")
    assert (done["mode"], done["through_arrival"]) == ("promotion", 4)
    assert len(store.load_rows(PER_MINUTE.published_table)) == made["windows"]
    assert told("diff", "per_minute")["same"]
    assert "has no backup to restore" in refused("rebuild", "per_minute", "--rollback")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backfill", "--since-arrival", "1", "--arrived-from", "2013-01-01"], "not both."),
        (["backfill", "--arrived-from", "soon"], "'soon' is not a date or time"),
        (["backfill", "--from", "2013-01-01", "--too-late"], "Choose the windows in one way: by"),
        (["backfill", "--too-late", "--since-arrival", "1"], "Choose the windows in one way: by"),
        (["backfill", "--too-late", "--late-events", "include"], "--late-events include is for"),
        (["backfill", "--into", "tried"], "--into requires --since-arrival or --arrived-from"),
        (["backfill", "--discard"], "--discard deletes the tables of --into NAME, and can't be"),
        (["backfill", "--discard", "--into", "a", "--since-arrival", "1"], "--discard deletes the"),
        (["backfill", "--since-arrival", "1", "--into", "A b"], "A b"),
        (
            ["rebuild", "--promote", "--rollback"],
            "Use at most one of --promote, --rollback and --discard.",
        ),
        (["rebuild", "--no-backup"], "--no-backup requires --promote."),
        (["rebuild", "--rollback", "--no-backup"], "--no-backup requires --promote."),
        (["sink"], "'departures_hourly' has no topic to publish to: add `sink="),
        (["sink", "--follow", "--reset"], "Use either --follow or --reset, not both."),
    ],
)
@pytest.mark.usefixtures("nowhere")
def test_invalid_options_are_refused(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_DOMAINS", raising=False)
    command, *options = arguments
    said = refused(command, "departures_hourly", *options)
    assert sentence in said
    assert said.endswith(".")
