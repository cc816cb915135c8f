"""`tidemark erase`: its output, its refusals, and the data that is left in the home."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from helpers.data.landing import HEADER, SOURCE, clock, land
from helpers.data.searched import found
from helpers.processes.commands import call
from helpers.suite.nightly import mostly_nightly
from tidemark.base.settings import Settings
from tidemark.store import claims
from tidemark.store.upkeep import erasures
from tidemark.store.warehouse import SCRATCH, Warehouse
from tidemark.verify import record
from tidemark.verify.parity import Difference, ParityReport
from tidemark_streaming.streams import desired_streams

ANN = "ann-of-the-erasure"
WHERE = ("--where", f"sensor = '{ANN}'")
BOBS = {point: f"bob-killed-at-{point}" for point in ("letters", "counted")}
"""Sensors whose erasures are killed, each at a different fail point."""


@pytest.fixture(scope="module", autouse=True)
def played(here: Settings) -> None:
    """Ingest readings of which one of Ann's windows is quarantined and one of her lines is
    malformed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "watched")
        many = "".join(f"{clock(n)},{ANN},{n}\n" for n in range(5))
        land(Path(here.landing) / "sensors", "0.csv", f"{HEADER}{many}{clock(9)},b,1\n", 0)
        odd = "".join(f"gibberish,{who},x\n" for who in (ANN, *BOBS.values()))
        bobs = "".join(f"{clock(80)},{bob},{n}\n" for bob in BOBS.values() for n in range(2))
        land(
            Path(here.landing) / "sensors", "1.csv", f"{HEADER}{clock(70)},{ANN},7\n{bobs}{odd}", 1
        )
        land(Path(here.landing) / "sensors", "2.csv", f"{HEADER}{clock(9000)},b,1\n", 2)
        for words in (["ingest", "sensors"], ["run", "by_minute"], ["run", "by_hour"]):
            assert call(*words).exit_code == 0


@pytest.fixture(autouse=True)
def _domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")


def test_erase_needs_confirmation_and_a_stopped_stream(here: Settings) -> None:
    unasked = call("erase", "sensors", *WHERE)
    assert unasked.exit_code == 2
    assert "pass --yes" in unasked.stderr
    desired_streams.request_stream(here, "by_hour")
    refused = call("erase", "sensors", *WHERE, "--yes", "--vacuum")
    desired_streams.cancel_request(here, "by_hour")
    assert refused.exit_code == 2
    assert "`tidemark stream by_hour --stop`" in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_an_erasure_leaves_no_data_of_the_person_in_the_home(
    here: Settings, spark: SparkSession
) -> None:
    store = Warehouse(spark, here.warehouse, here.database)
    home = Path(here.warehouse) / here.database
    looked = call("erase", "sensors", *WHERE, "--dry-run")
    said = " ".join((looked.stdout + looked.stderr).split())
    assert "sensors_log" in said
    assert "6" in said
    assert "The bytes of 3 dead letters of 'sensors' were kept" in said
    assert f"The files in '{Path(here.landing) / 'sensors'}' are unchanged" in said
    assert found(home, ANN)

    # A recorded difference of a parity check also contains her name.
    odd = Difference("value", "2023-11-14T22:13:00Z", {"sensor": ANN}, "n", "1", "2")
    record.record_comparison(store, ParityReport("by_minute", 2, 1, 0, 1, [odd]))
    # Another run is in progress.
    handle = claims.claim_folder(store.path_of(f"{SCRATCH}/beside"))
    told = json.loads(
        call(
            *(
                "erase",
                "sensors",
                *WHERE,
                "--dead-letters-containing",
                ANN,
                "--yes",
                "--vacuum",
                "--json",
            )
        ).stdout
    )
    claims.release_claim(handle)
    assert claims.sweep_folders(store.path_of(SCRATCH)).remaining == []
    assert told["erased"]["unswept"] == ["beside"]
    (said,) = (sentence for sentence in told["beyond"] if SCRATCH in sentence)
    assert "still exist (beside). The process that uses them" in said
    assert (told["erased"]["events"], told["erased"]["dead_letters"]) == (6, 1)
    touched = {p["table"] for p in told["erased"]["places"]}
    assert touched >= {"sensors_log", "sensors_dead_letters", "by_minute", "by_hour"}
    assert "by_minute_quarantine" in touched
    assert found(here.home, ANN) == []
    assert call("parity", "by_minute").exit_code == 0
    assert call("parity", "by_hour").exit_code == 0


# Starts and kills a process for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("point", mostly_nightly(BOBS))
def test_a_killed_erasure_is_completed_by_running_it_again(
    here: Settings, spark: SparkSession, point: str
) -> None:
    bob, store = BOBS[point], Warehouse(spark, here.warehouse, here.database)
    words = [
        "erase",
        "sensors",
        "--where",
        f"sensor = '{bob}'",
        "--dead-letters-containing",
        bob,
        "--yes",
    ]
    killed = subprocess.run(
        [Path(sys.executable).with_name("tidemark"), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TIDEMARK_FAIL_AT": point},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = [b for b in store.load_rows("sensors_dead_letters")["bytes"].to_pylist() if b]
    assert not any(bob.encode() in b for b in kept), "its letters are empty by then"
    events = store.read_frame("sensors_log").where(f"sensor = '{bob}'").count()
    windows = store.read_frame("by_minute").where(f"sensor = '{bob}'").count()
    assert (events, windows) == ((2, 1) if point == "letters" else (0, 0))

    report = json.loads(call(*words, "--vacuum", "--json").stdout)
    assert not any(SCRATCH in sentence for sentence in report["beyond"])
    told = report["erased"]
    gone = point == "counted"
    assert (told["resumed"], told["events"]) == (int(gone), 0 if gone else 2)
    # The next run also deletes temporary tables of a process that was killed in its search.
    assert told["swept"] == int(point == "letters")
    assert found(Path(here.warehouse), bob) == []
    assert erasures.find_unfinished(store, SOURCE) == []
    for asset in ("by_minute", "by_hour"):
        assert call("parity", asset).exit_code == 0
