"""`tidemark maintain` and `tidemark drop`: their output, their refusals and the remaining data."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gated.readings import ARRIVALS
from gated.transforms import gated
from helpers.data.support import READINGS, ingest
from helpers.processes.commands import call
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base import foreground
from tidemark_streaming.cli.operations.maintain import find_blocker
from tidemark_streaming.snapshot.check_results import results_since
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import desired_streams


@pytest.fixture(scope="module", autouse=True)
def store(here: Settings, spark: SparkSession) -> Iterator[Warehouse]:
    """Yield the tables of the domain `gated` after three runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_DOMAINS", "gated")
        store = Warehouse(spark, here.warehouse, here.database, registered=False)
        for arrival in ARRIVALS[:3]:
            ingest(store, READINGS, [arrival], ends=False)
            assert incremental(store, gated) is not None
        yield store


def test_files_are_compacted_and_the_result_is_shown(store: Warehouse) -> None:
    wanted = json.loads(call("maintain", "--dry-run", "--json").stdout)
    state = next(row for row in wanted if row["table"] == "gated_state")
    assert (state["before"], state["after"], state["removed"]) == (3, 1, 0)
    shown = call("maintain", "gated_state", "--retention", "0")
    words = shown.stdout.split()
    assert words[words.index("gated_state") :][:8:2] == ["gated_state", "3", "1", "3"]
    assert "1 table" in shown.stderr
    assert store.load_rows("gated_state").num_rows > 3
    assert incremental(store, gated) is None


def test_unknown_tables_and_unconfirmed_drops_are_refused() -> None:
    unknown = call("maintain", "nope")
    assert unknown.exit_code == 2
    assert "There is no Tidemark table 'nope'. Available: checks, gated," in unknown.stderr
    unasked = call("drop", "gated")
    assert unasked.exit_code == 2
    assert "pass --yes" in unasked.stderr
    assert "There is no asset 'nope'" in call("drop", "nope", "--yes").stderr


def test_an_asset_with_a_requested_stream_is_not_dropped(here: Settings, store: Warehouse) -> None:
    desired_streams.request_stream(here, "gated")
    refused = call("drop", "gated", "--yes")
    desired_streams.cancel_request(here, "gated")
    assert refused.exit_code == 2
    assert "`tidemark stream gated --stop`" in " ".join(refused.stderr.split())
    assert store.has_table("gated_state")


@pytest.mark.parametrize(
    ("kind", "name", "assets", "command"),
    [
        (foreground.STREAM, "gated", (), "`tidemark stream gated`"),
        (foreground.SINK, "gated", (), "`tidemark sink gated --follow`"),
        (
            foreground.INGEST,
            "readings",
            ("other", "gated"),
            "`tidemark ingest readings --follow --run other --run gated`",
        ),
    ],
)
def test_an_asset_in_use_by_a_command_is_not_dropped(
    here: Settings,
    store: Warehouse,
    kind: str,
    name: str,
    assets: tuple[str, ...],
    command: str,
) -> None:
    with foreground.record_running(here, kind, name, assets):
        refused = call("drop", "gated", "--yes")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert f"{command} is working on 'gated'" in said
    assert "first stop it" in said
    assert store.has_table("gated_state")


def test_other_and_failed_commands_do_not_block_a_drop(here: Settings) -> None:
    with pytest.raises(DataError), foreground.record_running(here, foreground.STREAM, "gated"):
        raise DataError("It has failed.")
    with (
        foreground.record_running(here, foreground.STREAM, "other"),
        foreground.record_running(here, foreground.INGEST, "readings", ("other",)),
        foreground.record_running(here, foreground.INGEST, "gated"),
        foreground.record_running(here, "lane", "gated"),
    ):
        assert find_blocker(here, "gated") is None
    assert foreground.forget_command(here, foreground.STREAM, "gated")


@pytest.mark.slow
def test_a_dropped_asset_starts_from_the_beginning(here: Settings, store: Warehouse) -> None:
    snapshot = Snapshot(here, [gated])
    assert snapshot.assets_behind(["gated"], 2) == []
    before = {r.run for r in results_since(snapshot, "gated")}
    # The first run had no window to validate.
    assert len(before) == 2
    dropped = json.loads(call("drop", "gated", "--yes", "--json").stdout)["dropped"]
    assert {"gated", "gated_state", "gated_quarantine"} <= set(dropped)
    for look in (snapshot, Snapshot(here, [gated])):
        assert look.assets_behind(["gated"], 2) == ["gated"]
        assert look.last_run("gated") is None
        assert look.read_runs() == []
        assert results_since(look, "gated") == []
        asset = look.read_asset(gated)
        assert (asset.as_of, asset.windows, asset.open) == (-1, 0, 0)
    facts = incremental(store, gated, limit=2)
    assert facts is not None
    for look in (snapshot, Snapshot(here, [gated])):
        assert [(r["commit_number"], r["run"]) for r in look.read_runs()] == [(0, facts.run)]
        newest = look.last_run("gated")
        assert newest is not None
        assert newest["run"] == facts.run
        assert {r.run for r in results_since(look, "gated")} == {facts.run}
        assert look.assets_behind(["gated"], 2) == ["gated"]
        assert look.read_asset(gated).as_of == 1
    assert "nothing to drop" not in call("drop", "gated", "--yes").stderr
    assert "nothing to drop" in call("drop", "gated", "--yes").stderr


def test_tables_that_no_domain_defines_are_dropped(here: Settings, store: Warehouse) -> None:
    rows = pa.table({"n": pa.array([1], pa.int64())})
    ghost = replace(gated, name="ghost")
    tables = [*ghost.own_tables, *ghost.with_side_tables("rebuild").own_tables]
    for table in tables:
        store.ensure_table(table, rows)
    # A source that is not derived is never dropped.
    lost = replace(gated.source, name="lost_source")
    store.ensure_table(lost.log_table, rows)
    dropped = json.loads(call("drop", "ghost", "--yes", "--json").stdout)["dropped"]
    assert sorted(dropped) == sorted(tables)
    assert not any(store.has_table(table) for table in tables)
    assert "There is no asset 'lost_source'" in call("drop", "lost_source", "--yes").stderr
    assert store.drop_table(lost.log_table)
