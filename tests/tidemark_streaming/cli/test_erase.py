"""`tidemark erase`: what it says, what it refuses, and what is left in the home."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commands import call
from landing import HEADER, clock, land
from searched import found
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark.verify import record
from tidemark.verify.parity import Difference, ParityReport
from tidemark_streaming import wishes

ANN = "ann-of-the-erasure"
WHERE = ("--where", f"sensor = '{ANN}'")


@pytest.fixture(scope="module", autouse=True)
def played(here: Settings) -> None:
    """Readings of which a window of Ann's is withheld, and a line of hers can't be decoded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "watched")
        many = "".join(f"{clock(n)},{ANN},{n}\n" for n in range(5))
        land(here.landing / "sensors", "0.csv", f"{HEADER}{many}{clock(9)},b,1\n", 0)
        odd = f"gibberish,{ANN},x\n"
        land(here.landing / "sensors", "1.csv", f"{HEADER}{clock(70)},{ANN},7\n{odd}", 1)
        land(here.landing / "sensors", "2.csv", f"{HEADER}{clock(9000)},b,1\n", 2)
        for words in (["ingest", "sensors"], ["run", "by_minute"], ["run", "by_hour"]):
            assert call(*words).exit_code == 0


@pytest.fixture(autouse=True)
def _domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")


def test_a_mistake_is_one_sentence(here: Settings) -> None:
    unasked = call("erase", "sensors", *WHERE)
    assert unasked.exit_code == 2
    assert "say --yes" in unasked.stderr
    wishes.wish(here, "by_hour")
    refused = call("erase", "sensors", *WHERE, "--yes", "--vacuum")
    wishes.withdraw(here, "by_hour")
    assert refused.exit_code == 2
    assert "`tidemark stream by_hour --stop`" in " ".join(refused.stderr.split())


def test_nothing_of_hers_is_left_in_the_home(here: Settings, spark: SparkSession) -> None:
    store = Warehouse(spark, here.warehouse, here.database)
    home = Path(here.warehouse) / here.database
    looked = call("erase", "sensors", *WHERE, "--dry-run")
    said = " ".join((looked.stdout + looked.stderr).split())
    assert "sensors_log" in said
    assert "6" in said
    assert "1 dead letters of 'sensors' keep their bytes" in said
    assert f"The files in '{here.landing / 'sensors'}' stay" in said
    assert found(home, ANN)

    # What a comparison had to say of hers.
    odd = Difference("value", "2023-11-14T22:13:00Z", {"sensor": ANN}, "n", "1", "2")
    record.append(store, ParityReport("by_minute", 2, 1, 0, 1, [odd]))
    told = json.loads(
        call(
            *("erase", "sensors", *WHERE, "--letters-with", ANN, "--yes", "--vacuum", "--json")
        ).stdout
    )
    assert (told["erased"]["events"], told["erased"]["dead_letters"]) == (6, 1)
    touched = {p["table"] for p in told["erased"]["places"]}
    assert touched >= {"sensors_log", "sensors_dead_letters", "by_minute", "by_hour"}
    assert "by_minute_quarantine" in touched
    assert found(here.home, ANN) == []
    assert call("parity", "by_minute").exit_code == 0
    assert call("parity", "by_hour").exit_code == 0
