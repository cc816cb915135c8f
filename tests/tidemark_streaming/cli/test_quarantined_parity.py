"""`tidemark parity` reports quarantined windows, even if all rows are equal. The demo ends if one
is quarantined because of a fault of Tidemark."""

import json
from collections.abc import Iterator

import pytest
import typer
from pyspark.sql import SparkSession

from gated.readings import ARRIVALS
from gated.transforms import gated
from helpers.data.planted import lose_recount
from helpers.data.support import READINGS, ingest
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.record import TABLE
from tidemark_streaming.cli.getting_started.demo import check_parity


@pytest.fixture(scope="module", autouse=True)
def store(here: Settings, spark: SparkSession) -> Iterator[Warehouse]:
    """Yield the tables of the domain `gated` with one quarantined window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "gated")
        store = Warehouse(spark, here.warehouse, here.database, registered=False)
        ingest(store, READINGS, ARRIVALS, ends=False)
        assert incremental(store, gated) is not None
        yield store


def test_parity_reports_and_records_quarantined_windows(store: Warehouse) -> None:
    found = json.loads(call("parity", "gated", "--json").stdout)
    assert (found["equal"], found["windows"], found["quarantined"]) == (True, 5, 1)
    assert found["quarantined_by"] == {"between(most, max_value=5)": 1}
    said = " ".join(call("parity", "gated", "--from", "2023-11-15").stdout.split())
    assert said.startswith("equal: 3 rows of 'gated'")
    assert (
        "Of these, 1 is in quarantine and not published, because of expectation between(most, "
        "max_value=5) (1). `tidemark quarantine list gated` shows why." in said
    )
    before = " ".join(call("parity", "gated", "--to", "2023-11-15").stdout.split())
    assert "in quarantine" not in before
    recorded = store.load_rows(TABLE).sort_by("number").to_pylist()
    told = [(r["number"], r["asset"], r["windows"], r["quarantined"]) for r in recorded]
    assert told == [(0, "gated", 5, 1), (1, "gated", 3, 1), (2, "gated", 2, 0)]


def test_the_demo_continues_if_values_explain_the_quarantine(
    store: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    check_parity(store, gated)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 is in quarantine and not published" in said
    assert "because of expectation between(most, max_value=5) (1)" in said


def test_the_demo_fails_on_a_fault_of_tidemark(
    store: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_recount(monkeypatch, commit_number=1, times=2)
    ingest(store, READINGS, [])
    assert incremental(store, gated) is not None
    with pytest.raises(typer.Exit) as ended:
        check_parity(store, gated)
    assert ended.value.exit_code == 1
    complaint = capsys.readouterr().err
    assert "'gated' has quarantined windows that fail matches_log()." in complaint
    assert "a fault of Tidemark, not of the data: `tidemark backfill gated`" in complaint
    assert "fault of Tidemark" in call("status").stdout
    monkeypatch.undo()
    assert call("backfill", "gated").exit_code == 0
    check_parity(store, gated)
    assert "fault of Tidemark" not in call("status").stdout
