"""`tidemark show`: the newest windows, filters, too-late events, and suggestions for misspelled
names."""

import csv
import json
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gated.readings import ARRIVALS, reading
from gated.transforms import gated
from helpers.data.support import READINGS, ingest
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.cli.console import result_console


@pytest.fixture(scope="module", autouse=True)
def store(here: Settings, spark: SparkSession) -> Iterator[Warehouse]:
    """Yield the tables of the domain `gated` after a run with a too-late event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "gated")
        # No engine answers there: the tables are read without one.
        patch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
        store = Warehouse(spark, here.warehouse, here.database, registered=False)
        late = [[*ARRIVALS[2], reading(3, 0, "b", 1)], [reading(0, 0, "a", 1)]]
        assert "has no rows yet" in call("show", "gated").stderr
        assert json.loads(call("show", "gated", "--json").stdout) == []
        ingest(store, READINGS, [ARRIVALS[0], ARRIVALS[1], *late], ends=False)
        assert incremental(store, gated) is not None
        yield store


def shown(*arguments: str) -> list[tuple[str, str | None]]:
    rows = json.loads(call("show", "gated", "--json", *arguments).stdout)
    return [(r["window_start"][:16], r["sensor"]) for r in rows]


THIRD = [("2023-11-16T22:14", "a"), ("2023-11-16T22:14", None)]
"""The windows of the third day, the newest ones: no window of the fourth day has closed."""


def test_the_newest_windows_come_first_and_can_be_filtered() -> None:
    every = shown()
    assert every[:2] == THIRD
    assert [start for start, _ in every] == sorted((s for s, _ in every), reverse=True)
    for limit in (1, 2, 3):
        assert shown("--limit", str(limit)) == every[:limit]
    assert shown("--key", "sensor=b") == [row for row in every if row[1] == "b"]
    within = shown("--from", "2023-11-14T22:15", "--to", "2023-11-15T22:15")
    assert within == [r for r in every if "2023-11-14T22:15" <= r[0] < "2023-11-15T22:15"] != []
    assert shown("--final") == every


def test_windows_are_shown_as_table_and_csv_and_late_events_too() -> None:
    drawn = " ".join(call("show", "gated", "--limit", "2").stdout.split())
    assert "2023-11-16 22:14:00" in drawn
    rows = list(csv.DictReader(call("show", "gated", "--csv").stdout.splitlines()))
    assert [(r["window_start"][:16], r["sensor"] or None) for r in rows] == shown()
    (late,) = json.loads(call("show", "gated", "--late", "--json").stdout)
    assert (late["reason"], late["sensor"], late["ts"]) == ("too_late", "a", "2023-11-14T22:14:00Z")
    assert "too_late" in call("show", "gated", "--late").stdout
    assert "No rows found" in call("show", "gated", "--key", "sensor=z").stderr


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"COLUMNS": "60"},
        {"FORCE_COLOR": "1", "TERM": "dumb"},
        {"TTY_COMPATIBLE": "1", "TERM": "unknown"},
    ],
    ids=lambda told: " ".join(told) or "plain",
)
def test_without_a_terminal_a_table_is_never_cut(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    head, *rows = call("show", "gated", "--limit", "2").stdout.splitlines()
    assert head.split()[:2] == ["window_start", "sensor"]
    assert head.split()[-4:] == ["late_events", "revision", "timing", "final"]
    assert [row[:19] for row in rows] == ["2023-11-16 22:14:00"] * 2


def test_a_table_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    main, terminal = os.openpty()
    with os.fdopen(main, "rb", buffering=0), os.fdopen(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "60")
        assert result_console().width == 60


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "gatd"], "There is no asset or source 'gatd'. Available: gated. Did"),
        (["show", "gated", "--late", "--final"], "--late, for events, but not both."),
        (["show", "gated", "--key", "sensr=a"], "has no key 'sensr'; its keys: sensor."),
        (["show", "gated", "--json", "--csv"], "Use either --json or --csv, not both."),
        (["shwo", "gated"], "Did you mean"),
    ],
)
def test_a_misspelled_name_is_refused_with_a_suggestion(
    arguments: list[str], sentence: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
