"""A continuous query publishes the same rows as runs and backfills, through restarts and
failures."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from helpers.data.runs import published_through
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    filtered_by_nothing,
    ingest,
    published,
    reference,
    some_arrivals,
)
from tidemark import expect as q
from tidemark.base.errors import DataError, DefinitionChangedError, EngineError
from tidemark.base.settings import Settings
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.admission import ALL, Admission
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_streaming.streams import continuous

ARRIVALS = some_arrivals(count=6)


def wait_for(warehouse: Warehouse, transform: WindowedTransform, arrival: int) -> None:
    deadline = time.monotonic() + 120
    while State(warehouse, transform).read_last_commit().after.at.arrival < arrival:
        query = continuous.find_query(warehouse, transform)
        assert query is not None, "the stream ended"
        assert query.exception() is None
        assert time.monotonic() < deadline, "the stream does not get on"
        time.sleep(0.3)


# Starts a stream several times.
@pytest.mark.slow
def test_a_limit_splits_the_backlog_and_is_recorded(warehouse: Warehouse) -> None:
    """If the limit is not reached, a run takes the arrivals of several commits."""
    for limit, through in ((Admission(rows=1_000_000), 2), (Admission(arrivals=2), 5)):
        for arrival in range(through - 2, through + 1):
            ingest(warehouse, READINGS, ARRIVALS[arrival : arrival + 1], ends=False)
        continuous.start_query(
            warehouse, PER_MINUTE, admission=limit, available_now=True
        ).awaitTermination(120)
    runs = warehouse.load_rows(ledger.TABLE).sort_by("commit_number").to_pylist()
    assert [(r["through_arrival"], r["limited_by"]) for r in runs] == [
        (2, None),
        (4, "arrivals"),
        (5, None),
    ]


# Starts a stream several times.
@pytest.mark.slow
def test_a_stream_without_its_checkpoint_loses_nothing(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    query = continuous.start_query(warehouse, PER_MINUTE, admission=Admission(1))
    found = continuous.find_query(warehouse, PER_MINUTE)
    assert found is not None
    assert found.id == query.id
    with pytest.raises(EngineError, match="stream of 'per_minute' is already running"):
        continuous.start_query(warehouse, PER_MINUTE)
    ingest(warehouse, READINGS, ARRIVALS[2:4], ends=False)
    wait_for(warehouse, PER_MINUTE, 3)
    assert continuous.stop_query(warehouse, PER_MINUTE)
    assert not continuous.stop_query(warehouse, PER_MINUTE)
    assert continuous.find_query(warehouse, PER_MINUTE) is None

    shutil.rmtree(Path(continuous.checkpoint_path(warehouse, PER_MINUTE)))
    ingest(warehouse, READINGS, ARRIVALS[4:])
    continuous.start_query(warehouse, PER_MINUTE, available_now=True).awaitTermination(120)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)
    assert incremental(warehouse, PER_MINUTE) is None
    assert check_parity(warehouse, PER_MINUTE).is_equal


# Waits for a stream that fails and recovers.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_recovers_from_a_missing_version_of_its_table(warehouse: Warehouse) -> None:
    """Listing a transaction log may miss a version that is written at the same time."""
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    continuous.start_query(warehouse, PER_MINUTE, available_now=True).awaitTermination(120)
    timeline = DeltaTable(warehouse.path_of(READINGS.timeline_table))
    unread = f"{timeline.version() + 1:020}.json"
    ingest(warehouse, READINGS, ARRIVALS[2:4], ends=False)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    # The checkpoint makes this version redundant.
    timeline.update_incremental()
    timeline.create_checkpoint()
    Path(warehouse.path_of(READINGS.timeline_table), "_delta_log", unread).unlink()
    query = continuous.start_query(warehouse, PER_MINUTE, available_now=True)
    query.awaitTermination(120)
    assert query.exception() is None
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


def test_a_batch_that_misses_an_arrival_still_processes_it(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS)
    timeline = warehouse.read_frame(READINGS.timeline_table)
    run = continuous._asset_function(warehouse.place, PER_MINUTE, ALL)
    run(timeline.where("arrival <> 2"), 0)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


# Waits for two streams.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_ups_stream_follows_the_runs_of_its_base(warehouse: Warehouse) -> None:
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    # The base has never run.
    query = continuous.start_query(warehouse, whole)

    def through(commit_number: int) -> None:
        deadline = time.monotonic() + 120
        while published_through(warehouse, whole) < commit_number:
            assert query.exception() is None
            assert query.isActive
            assert time.monotonic() < deadline, "the stream does not get on"
            time.sleep(0.3)

    incremental(warehouse, PER_MINUTE)
    through(0)
    ingest(warehouse, READINGS, ARRIVALS[3:])
    assert continuous.start_query(warehouse, PER_MINUTE, available_now=True).awaitTermination(120)
    through(1)
    assert continuous.stop_query(warehouse, whole)
    assert incremental(warehouse, whole) is None
    report = check_parity(warehouse, whole)
    assert report.is_equal
    assert report.windows > 0


# Waits for a stream.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_ups_batch_waits_for_its_bases_first_run(warehouse: Warehouse) -> None:
    """Spark may start with a batch of the empty ledger; runs of others add rows later."""
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    ingest(warehouse, READINGS, ARRIVALS)
    ledger.ensure_ledger(warehouse)
    run = continuous._asset_function(warehouse.place, whole, ALL)
    run(warehouse.read_frame(ledger.TABLE), 0)
    assert not warehouse.has_table(whole.published_table)
    incremental(warehouse, PER_MINUTE)
    run(warehouse.read_frame(ledger.TABLE), 1)
    assert check_parity(warehouse, whole).is_equal
    assert published_through(warehouse, whole) == 0


# Waits for two streams.
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "now",
    [
        replace(PER_MINUTE, function=filtered_by_nothing),
        replace(PER_MINUTE, window=Tumbling("5 minutes")),
    ],
    ids=["runs go on", "counted anew"],
)
def test_a_roll_ups_stream_ends_if_its_bases_definition_changed(
    warehouse: Warehouse, now: WindowedTransform
) -> None:
    """With its own definition, it would omit events that the base now counts."""
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    # An earlier definition has run it before.
    incremental(warehouse, replace(PER_MINUTE, function=filtered_by_nothing))
    run = continuous._asset_function(warehouse.place, whole, ALL)
    run(warehouse.read_frame(ledger.TABLE), 0)
    ingest(warehouse, READINGS, ARRIVALS[3:4], ends=False)
    incremental(warehouse, PER_MINUTE)
    run(warehouse.read_frame(ledger.TABLE), 1)
    version = warehouse.newest_version(whole.published_table)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    backfill(warehouse, now)
    with pytest.raises(DefinitionChangedError):
        run(warehouse.read_frame(ledger.TABLE), 2)
    assert warehouse.newest_version(whole.published_table) == version
    later = replace(whole, base=now, allowed_lateness=now.allowed_lateness)
    incremental(warehouse, later)
    assert check_parity(warehouse, later).is_equal


def test_a_stream_over_a_source_without_arrivals_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(DataError, match="was never ingested: first run `tidemark ingest readings`"):
        continuous.start_query(warehouse, PER_MINUTE)


def test_a_stream_in_an_object_store_polls_less_often(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "local_folder", lambda _: None)
    monkeypatch.setattr(continuous, "_STORE_POLLING_DELAY", "10min")
    before = warehouse.spark.conf.get("spark.sql.streaming.pollingDelay")
    ingest(warehouse, READINGS, ARRIVALS[:1], ends=False)
    continuous.start_query(warehouse, PER_MINUTE)
    # Queries that start later in the session do not wait as long.
    assert warehouse.spark.conf.get("spark.sql.streaming.pollingDelay") == before
    wait_for(warehouse, PER_MINUTE, 0)
    # The stream does not wait after a poll that has found something.
    time.sleep(2)
    ingest(warehouse, READINGS, ARRIVALS[1:2], ends=False)
    time.sleep(3)
    assert State(warehouse, PER_MINUTE).read_last_commit().after.at.arrival == 0
    assert continuous.stop_query(warehouse, PER_MINUTE)


def test_an_error_in_a_run_ends_the_stream_with_its_message(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:1])
    lacking = replace(PER_MINUTE, function=lambda rows: rows.drop("arrival"))
    query = continuous.start_query(warehouse, lacking, available_now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    said = continuous.failure_reason(caught.value)
    assert said.startswith("Asset 'per_minute': its function's result has no column 'arrival'; it")


def test_a_changed_definition_is_recognized_as_the_cause(warehouse: Warehouse) -> None:
    def changed(_: DataFrame) -> DataFrame:
        raise DefinitionChangedError("Asset 'per_minute' has another definition since.")

    ingest(warehouse, READINGS, ARRIVALS[:1])
    older = replace(PER_MINUTE, function=changed)
    query = continuous.start_query(warehouse, older, available_now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    assert (
        continuous.failure_reason(caught.value)
        == "Asset 'per_minute' has another definition since."
    )
    assert continuous.is_outdated(caught.value)
    assert not continuous.is_outdated(
        StreamingQueryException("tidemark.base.errors.DataError: No.")
    )


def test_a_streams_worker_computes_the_same_fingerprint(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    found = tmp_path / "fingerprints"

    def write(batch: DataFrame, _: int) -> None:
        found.write_text(" ".join(compute_fingerprint(t) for t in (PER_MINUTE, departures_hourly)))

    ingest(warehouse, READINGS, ARRIVALS[:1])
    reader = warehouse.spark.readStream.format("delta")
    rows = reader.load(warehouse.path_of(READINGS.timeline_table))
    query = rows.writeStream.foreachBatch(write).trigger(availableNow=True).start()
    query.awaitTermination(60)
    ours = [compute_fingerprint(PER_MINUTE), compute_fingerprint(departures_hourly)]
    assert found.read_text().split() == ours


def test_each_assets_stream_has_its_own_session(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    other = settings.model_copy(update={"database": "other"})
    ids = [continuous.session_id(s, a) for s in (settings, other) for a in ("one", "two")]
    assert len(set(ids)) == 4
    assert ids[0] == continuous.session_id(settings, "one")


# A stream with one run per arrival.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_quarantines_windows_that_fail(warehouse: Warehouse) -> None:
    limit = q.between("most", max_value=0.9)
    expecting = replace(PER_MINUTE, expectations=(limit, q.matches_log()))
    ingest(warehouse, READINGS, ARRIVALS)
    continuous.start_query(warehouse, expecting, available_now=True).awaitTermination(240)
    withheld = warehouse.read_frame(expecting.quarantine_table).collect()
    want = [w for w, row in reference(ARRIVALS).items() if row["most"] > 0.9]
    assert len(withheld) == len(want) > 0
    assert {f["expectation"] for row in withheld for f in row["failed_expectations"]} == {
        limit.name
    }
    assert check_parity(warehouse, expecting).is_equal
