"""What is withheld is told by `tidemark parity`, which may say "equal" all the same, and by the
demo, which ends where the data do not explain it."""

import json
from collections.abc import Iterator

import pytest
import typer
from pyspark.sql import SparkSession

from commands import call
from gated.readings import ARRIVALS, DAY
from gated.transforms import gated
from planted import lose_recount
from support import READINGS, T0, ingest
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.record import TABLE
from tidemark_streaming.cli.withheld import report_quarantine


@pytest.fixture(scope="module", autouse=True)
def store(here: Settings, spark: SparkSession) -> Iterator[Warehouse]:
    """The tables of the domain `gated`, of which a window is withheld."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "gated")
        store = Warehouse(spark, here.warehouse, here.database)
        ingest(store, READINGS, ARRIVALS, ends=False)
        assert incremental(store, gated) is not None
        yield store


def test_parity_tells_what_is_withheld_and_leaves_it_on_record(store: Warehouse) -> None:
    found = json.loads(call("parity", "gated", "--json").stdout)
    assert (found["equal"], found["windows"], found["quarantined"]) == (True, 5, 1)
    assert found["withheld"] == {"between(most, most=5)": 1}
    said = " ".join(call("parity", "gated", "--from", "2023-11-15").stdout.split())
    assert said.startswith("equal: 3 rows of 'gated'")
    assert (
        "Of these, 1 is in quarantine and not published, because of expectation between(most, "
        "most=5) (1). `tidemark quarantine list gated` shows why." in said
    )
    before = " ".join(call("parity", "gated", "--to", "2023-11-15").stdout.split())
    assert "in quarantine" not in before
    recorded = store.take(TABLE).sort_by("number").to_pylist()
    told = [(r["number"], r["asset"], r["windows"], r["quarantined"]) for r in recorded]
    assert told == [(0, "gated", 5, 1), (1, "gated", 3, 1), (2, "gated", 2, 0)]


def test_the_demo_goes_on_where_the_data_explain_what_is_withheld(
    store: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_quarantine(store, gated) == [T0 + DAY]
    said = capsys.readouterr().out
    assert "1 window of 'gated' in quarantine, as their values explain:" in said
    assert "2023-11-15 22:14, a: between(most, most=5): 9" in said


def test_the_demo_ends_where_tidemark_withholds_what_is_in_order(
    store: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_recount(monkeypatch, seq=1, times=2)
    ingest(store, READINGS, [])
    assert incremental(store, gated) is not None
    with pytest.raises(typer.Exit) as ended:
        report_quarantine(store, gated)
    assert ended.value.exit_code == 1
    complaint = capsys.readouterr().err
    assert "of the quarantined windows of 'gated'" in complaint
    assert (
        "failed matches_log(), a fault of Tidemark, not of the data: `tidemark backfill"
        in complaint
    )
    assert "fault of Tidemark" in call("status").stdout
    # What it is told to do puts it right.
    monkeypatch.undo()
    assert call("backfill", "gated").exit_code == 0
    assert report_quarantine(store, gated) == [T0 + DAY]
    assert "fault of Tidemark" not in call("status").stdout
