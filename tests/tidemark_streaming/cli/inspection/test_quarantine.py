"""`tidemark quarantine`: list, release and discard windows, and results of expectations in
order."""

import json
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
from tidemark_streaming.snapshot.check_results import results_since
from tidemark_streaming.snapshot.snapshot import Snapshot


@pytest.fixture(scope="module", autouse=True)
def store(here: Settings, spark: SparkSession) -> Iterator[Warehouse]:
    """Yield the tables of the domain `gated` with two quarantined windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "gated")
        store = Warehouse(spark, here.warehouse, here.database, registered=False)
        bad = [[*ARRIVALS[1], reading(1, 2, "b", 7)]]
        ingest(store, READINGS, [ARRIVALS[0], *bad, ARRIVALS[2]])
        assert incremental(store, gated, limit=3) is not None
        yield store


def starts(*arguments: str) -> list[tuple[str, str, str]]:
    rows = json.loads(call("quarantine", "list", "gated", "--json", *arguments).stdout)
    return [(r["window_start"][:16], r["sensor"], r["quarantine_status"]) for r in rows]


def test_quarantined_windows_are_listed_and_shown() -> None:
    both = [("2023-11-15T22:14", "a", "quarantined"), ("2023-11-15T22:16", "b", "quarantined")]
    assert starts() == both
    assert starts("--from", "2023-11-15T22:15") == both[1:]
    assert starts("--key", "sensor=a") == both[:1]
    listed = " ".join(call("quarantine", "list", "gated").stdout.split())
    assert "gated: 2 windows in quarantine" in listed
    assert "between(most, max_value=5): 9" in listed
    assert "by expectation" in listed
    limited = call("quarantine", "list", "gated", "--limit", "1")
    assert "gated: 2 windows in quarantine" in " ".join(limited.stdout.split())
    assert "Only the first 1 window: increase --limit to show more." in limited.stderr
    assert limited.stdout.count("2023-11-15 22:16") < listed.count("2023-11-15 22:16")
    assert starts("--limit", "1") == both
    shown = " ".join(call("quarantine", "show", "gated", "--key", "sensor=a").stdout.split())
    assert "expected at most 5" in shown
    assert "observed 9" in shown
    assert "No such window" in call("quarantine", "show", "gated", "--key", "sensor=c").stderr


def test_each_result_is_returned_once_and_in_order(here: Settings, store: Warehouse) -> None:
    snapshot = Snapshot(here)
    first = results_since(snapshot, "gated")
    assert [(r.expectation, r.success, r.level) for r in first] == [
        ("between(most, max_value=5)", False, "error"),
        ("not_null(sensor)", True, "warning"),
        ("matches_log()", True, "error"),
    ]
    assert {r.commit_number for r in first} == {0}
    assert results_since(snapshot, "gated", 0) == []
    assert incremental(store, gated) is not None
    second = results_since(snapshot, "gated", 0)
    assert [(r.expectation, r.success) for r in second] == [
        ("between(most, max_value=5)", True),
        ("not_null(sensor)", False),
        ("matches_log()", True),
    ]
    assert (second[1].rows_validated, second[1].rows_failed) == (2, 1)
    assert json.loads(second[1].failures[0]["keys"]) == {"sensor": None}
    assert results_since(snapshot, "gated") == [*first, *second]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["release", "gated"],
            "Specify which windows to release: --from and --to, --key, or --all",
        ),
        (["discard", "gated", "--all", "--key", "sensor=a"], "Specify which windows to discard"),
        (["release", "gated", "--key", "=a"], "has no key ''; its keys: sensor."),
        (["release", "gated", "--key", "origin=a"], "has no key 'origin'; its keys: sensor."),
        (["release", "gated", "--key", "sensor=z"], "No such window of 'gated' is quarantined"),
        (["list", "gated", "--key", "origin=a"], "has no key 'origin'; its keys: sensor."),
        (["list", "nothing"], "There is no asset 'nothing'. Available: gated."),
    ],
)
def test_invalid_selections_of_windows_are_refused(arguments: list[str], sentence: str) -> None:
    result = call("quarantine", *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


def test_windows_are_released_and_discarded(store: Warehouse) -> None:
    said = call("quarantine", "release", "gated", "--key", "sensor=a", "--json")
    assert json.loads(said.stdout) == {"asset": "gated", "action": "release", "windows": 1}
    quality = store.read_frame("gated").where("most = 9").select("quality").collect()
    assert [r[0] for r in quality] == ["released"]
    assert call("quarantine", "discard", "gated", "--all").exit_code == 0
    assert starts() == []
    assert starts("--discarded") == [("2023-11-15T22:16", "b", "discarded")]
    assert "No window of 'gated' is in quarantine." in call("quarantine", "list", "gated").stderr


@pytest.mark.parametrize("command", ["list", "show", "release", "discard"])
def test_each_quarantine_command_has_an_example_in_its_help(command: str) -> None:
    said = " ".join(call("quarantine", command, "--help").stdout.replace("│", " ").split())
    assert f"tidemark quarantine {command}" in said
