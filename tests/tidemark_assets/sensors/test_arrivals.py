"""Test the sensors of arrivals on real Delta tables and a real instance of Dagster.

Only the test of roll-ups needs an engine."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from helpers.dagster.ticks import of as ticks_of
from helpers.data.landing import SOURCE, connector, land
from helpers.data.support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from helpers.data.tables import arrive, beat, count, ran
from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.processes.clocks import shift_clock
from tidemark.base.errors import DataError
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.sensors import arrivals, ingest_attempts
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files.folders import open_folder
from tidemark_streaming.findings.reads import Reads
from tidemark_streaming.findings.services import ServiceMonitor
from tidemark_streaming.ingest import ingest_record
from tidemark_streaming.ingest.ingest_record import lock_ingest, record_error
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import desired_streams

SECOND = 1_000_000
JOB = "some_ingest"
ASSETS = {name: replace(PER_MINUTE, name=name) for name in ("one", "two")}


def daily(_: str) -> dg.TimeWindowPartitionsDefinition:
    return dg.DailyPartitionsDefinition(start_date="2013-01-01")


def ingest_sensor(ingestion: Ingestion) -> dg.Definitions:
    """Return the sensor of one source, without assets."""
    return arrivals.arrivals("some", [ingestion], {}, daily)


def run_under_way(instance: dg.DagsterInstance, job: str, asset: str | None = None) -> None:
    """Add a run of a job, or of one of its assets."""
    instance.add_run(
        dg.DagsterRun(
            job_name=job,
            run_id=str(uuid4()),
            status=dg.DagsterRunStatus.STARTED,
            asset_selection=None if asset is None else frozenset({dg.AssetKey(asset)}),
        )
    )


def test_new_arrivals_launch_one_run_of_the_lagging_assets(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", [], ASSETS, daily), instance, settings)
    assert ticks.skipped() == "All windows are up to date with the event log."
    arrive(settings, "readings", 0, 3)
    assert ticks.launched() == ["one", "two"]
    ran(settings, "one", commit_number=0, through=3, watermark=0)
    ran(settings, "two", commit_number=0, through=3, watermark=0)
    assert ticks.skipped() == "All windows are up to date with the event log."
    arrive(settings, "readings", 4, 4)
    ran(settings, "two", commit_number=1, through=4, watermark=0)
    assert ticks.launched() == ["one"]


def test_a_heartbeat_launches_a_run_only_if_it_changes_a_window(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    up_to_date = "All windows are up to date with the event log."
    assets = {name: replace(asset, keys=("origin",)) for name, asset in ASSETS.items()}
    ticks = ticks_of(arrivals.arrivals("some", [], assets, daily), instance, settings)
    snapshot = Snapshot(settings, assets.values())
    arrive(settings, "readings", 0, 3, newest=5)
    ran(settings, ASSETS, 0, 3, watermark=5, from_arrival=-1, quarantined=0, duplicate=0)
    # The lateness of both is two minutes, so this window does not become final here.
    count(settings, "one", 0, 60 * SECOND)
    beat(settings, "readings", 4, 60 * SECOND - 1)
    assert ticks.skipped() == up_to_date
    for asset in assets.values():
        found = snapshot.read_asset(asset)
        assert (found.as_of, found.watermark, found.behind) == (4, 60 * SECOND - 1, 0)
    source = snapshot.read_source(READINGS)
    assert (source.arrived_at, source.clock, source.arrivals) == (3, 4, 5)
    beat(settings, "readings", 5, 60 * SECOND)
    assert ticks.launched() == ["one"]
    assert [snapshot.read_asset(a).behind for a in assets.values()] == [2, 0]
    ran(settings, "one", 1, 5, watermark=60 * SECOND, from_arrival=3, quarantined=0, duplicate=0)
    beat(settings, "readings", 6, 180 * SECOND - 1)
    assert ticks.skipped() == up_to_date
    # The window becomes final.
    beat(settings, "readings", 7, 180 * SECOND)
    assert ticks.launched() == ["one"]
    ran(settings, "one", 2, 7, watermark=180 * SECOND, from_arrival=5, quarantined=0, duplicate=0)
    beat(settings, "readings", 8, 9_999 * SECOND)
    assert ticks.skipped() == up_to_date
    arrive(settings, "readings", 9, 9, newest=5)
    assert ticks.launched() == ["one", "two"]
    runs = snapshot.runs_of(assets["one"])
    # Arrivals without an event have no latency.
    assert runs.from_arrival.cumulated_buckets()[-1][1] == 4


def test_only_an_active_sensor_is_shown_as_the_ingest(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live page reads the record of each tick. A disabled sensor leaves no record."""
    page, name = ServiceMonitor(settings, [SOURCE.name]), SOURCE.name
    assert not page.read(Reads({})).ingests[name].by_sensor
    ticks = ticks_of(ingest_sensor(Ingestion(SOURCE, connector)), instance, settings)
    ticks.skipped()
    assert ServiceMonitor(settings, [name]).read(Reads({})).ingests[name].by_sensor
    # If the clock was set back, the age of the last tick is unknown.
    for hours in (0.1, -0.1):
        with monkeypatch.context() as patch:
            shift_clock(patch, hours)
            assert not ingest_record.is_polled(settings, name)


def test_no_run_is_launched_twice(instance: dg.DagsterInstance, settings: Settings) -> None:
    ticks = ticks_of(arrivals.arrivals("some", [], ASSETS, daily), instance, settings)
    arrive(settings, "readings", 0, 3)
    first = ticks.requested()
    assert ticks.skipped().startswith("The run for one, two did not bring them up to date")
    ticks.cursor = None
    again = ticks.requested()
    # The Dagster daemon launches each run key only once.
    assert first.run_key == again.run_key
    run_under_way(instance, "some_catch_up")
    arrive(settings, "readings", 4, 4)
    assert ticks.skipped() == "A run of some_catch_up is already active. Waiting for it: one, two."


def test_recreated_tables_and_another_database_launch_new_runs(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """Their arrival numbers start at 0 again."""
    ticks = ticks_of(arrivals.arrivals("some", [], ASSETS, daily), instance, settings)
    arrive(settings, "readings", 0, 3)
    keys = [ticks.requested().run_key]
    for asset in ASSETS:
        ran(settings, asset, commit_number=0, through=3, watermark=0)
    assert ticks.skipped() == "All windows are up to date with the event log."
    tables = Path(settings.warehouse) / settings.database
    shutil.rmtree(tables / "one_state")
    keys.append(ticks.requested().run_key)
    shutil.rmtree(tables / "readings_timeline")
    arrive(settings, "readings", 0, 3)
    keys.append(ticks.requested().run_key)
    ticks.settings = settings.model_copy(update={"database": "other"})
    arrive(ticks.settings, "readings", 0, 3)
    keys.append(ticks.requested().run_key)
    assert len({*keys}) == 4


def test_a_backfill_of_a_range_leaves_the_asset_behind(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", [], ASSETS, daily), instance, settings)
    arrive(settings, "readings", 0, 3)
    ran(settings, "one", 0, 3, 0, mode="backfill")
    ran(settings, "two", 0, 3, 0, mode="backfill", window_from=as_datetime(0))
    assert ticks.launched() == ["two"]


def test_a_rolled_back_asset_is_launched_again(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """A rollback returns the asset to its earlier arrival."""
    own = arrivals.arrivals("some", [], {"one": ASSETS["one"]}, daily)
    ticks = ticks_of(own, instance, settings)
    ran(settings, "one", commit_number=0, through=2, watermark=0)
    arrive(settings, "readings", 0, 3)
    keys = [ticks.requested().run_key]
    assert ticks.skipped().startswith("The run for one did not bring them up to date")
    ran(settings, "one", commit_number=1, through=3, watermark=0)
    assert ticks.skipped() == "All windows are up to date with the event log."
    ran(settings, "one", commit_number=2, through=2, watermark=0, mode="backfill")
    keys.append(ticks.requested().run_key)
    assert ticks.skipped().startswith("The run for one did not bring them up to date")
    # The Dagster daemon launches each run key only once.
    assert len({*keys}) == 2


def test_a_rollup_behind_its_base_is_launched_alone(
    instance: dg.DagsterInstance, settings: Settings, warehouse: Warehouse
) -> None:
    """The run of its base was killed before the roll-up, or did not include it."""
    base = ASSETS["one"]
    five = rollup(of=base, name="five", window=Tumbling("5 minutes"))
    place = {"warehouse": warehouse.place.location, "database": warehouse.database}
    settings = settings.model_copy(update=place)
    own = arrivals.arrivals("some", [], {"five": five, "one": base}, daily)
    ticks = ticks_of(own, instance, settings)
    ingest(warehouse, READINGS, some_arrivals())
    assert ticks.launched() == ["one"]
    incremental(warehouse, base)
    assert ticks.launched() == ["five"]
    # A failed run is not launched again.
    assert ticks.skipped().startswith("The run for five did not bring them up to date")
    incremental(warehouse, five)
    assert ticks.skipped() == "All windows are up to date with the event log."
    backfill(warehouse, base, *minutes(2, 4))
    assert ticks.launched() == ["five"]
    incremental(warehouse, five)
    assert ticks.skipped() == "All windows are up to date with the event log."
    drop_asset(warehouse, base)
    backfill(warehouse, base)
    assert ticks.launched() == ["five"]
    desired_streams.request_stream(settings, "five")
    assert ticks.skipped() == "All windows are up to date with the event log."


def test_an_asset_with_a_stream_is_not_launched(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", [], ASSETS, daily), instance, settings)
    arrive(settings, "readings", 0, 3)
    desired_streams.request_stream(settings, "one")
    assert ticks.launched() == ["two"]
    ran(settings, "two", commit_number=0, through=3, watermark=0)
    desired_streams.request_stream(settings, "two")
    assert ticks.skipped() == "All windows are up to date with the event log."


# Fifty assets with a long ledger.
@pytest.mark.slow
def test_a_tick_over_fifty_assets_and_a_long_ledger_is_fast(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    assets = {f"a{n}": replace(PER_MINUTE, name=f"a{n}") for n in range(50)}
    arrive(settings, "readings", 0, 9)
    for commit_number in range(60):
        ran(settings, assets, commit_number, through=commit_number - 50, watermark=0)
    ticks = ticks_of(arrivals.arrivals("some", [], assets, daily), instance, settings)
    begun = time.monotonic()
    assert ticks.skipped() == "All windows are up to date with the event log."
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("run", [(JOB, None), (JOB, "sensors_log"), ("__ASSET_JOB", "sensors_log")])
def test_a_new_file_launches_an_ingest(
    instance: dg.DagsterInstance, settings: Settings, run: tuple[str, str | None]
) -> None:
    ticks = ticks_of(ingest_sensor(Ingestion(SOURCE, connector)), instance, settings)
    folder = Path(settings.landing) / "sensors"
    assert "from which source 'sensors' reads" in ticks.skipped()
    folder.mkdir(parents=True)
    assert ticks.skipped() == "No new data is pending for 'sensors'."
    land(folder, "1.csv", "at,sensor,value\n", 0)
    land(folder, "2.csv", "at,sensor,value\n", 1)
    request = ticks.requested()
    assert (request.job_name, request.asset_selection) == (JOB, [dg.AssetKey("sensors_log")])
    assert "2.csv" in (request.run_key or "")

    known = [json.dumps(file.position) for file in open_folder(folder).list_files()]
    arrive(settings, "sensors", 0, 1, positions=known)
    assert ticks.skipped() == "No new data is pending for 'sensors'."

    land(folder, "3.csv", "at,sensor,value\n", 2)
    for job, asset in (("some_catch_up", None), (JOB, "other_log")):
        run_under_way(instance, job, asset)
    assert ticks.requested().job_name == JOB
    run_under_way(instance, *run)
    assert ticks.skipped() == "An ingest of 'sensors' is already running."
    land(folder, "1.csv", "at,sensor,value\n,a,1\n", 0)
    assert "has changed since it was ingested" in ticks.skipped()


def test_a_failed_or_canceled_ingest_is_launched_again(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves no error record, and the next file may be a day away."""
    ticks = ticks_of(ingest_sensor(Ingestion(SOURCE, connector)), instance, settings)
    folder = Path(settings.landing) / "sensors"
    folder.mkdir(parents=True)
    land(folder, "1.csv", "at,sensor,value\n", 0)

    def launched() -> str:
        with monkeypatch.context() as patch:
            later = time.time() + len(keys) * (arrivals.RETRY_AFTER_SECONDS + 1)
            patch.setattr(time, "time", lambda: later)
            request = ticks.requested()
        return request.run_key or ""

    keys = list[str]()
    for number, status in enumerate(("FAILURE", "CANCELED")):
        keys.append(launched())
        run_id = f"{number}" * 8
        instance.add_run(
            dg.DagsterRun(
                job_name=JOB,
                run_id=run_id,
                status=dg.DagsterRunStatus(status),
                tags={arrivals.RUN_KEY: keys[-1]},
            )
        )
        assert f"of {JOB} did not ingest the pending data" in ticks.skipped()
    last = launched()
    assert len({*keys, last}) == 3
    assert launched() == last


def test_a_blocked_source_launches_nothing_until_a_new_ingest_starts(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(ingest_sensor(Ingestion(SOURCE, connector)), instance, settings)
    tables, folder = TidemarkResource(settings).tables, standing(settings)
    assert ticks.requested().job_name == JOB
    refuse(tables)
    land(folder, "2.csv", "at,sensor,value\n", 1)
    said = ticks.skipped()
    assert said.startswith("'sensors' is blocked: All rows of 1.csv fail on the column 'at'. The")
    assert "immediately after you materialize sensors_log successfully" in said
    with lock_ingest(tables, SOURCE) as held, record_error(held):
        assert ticks.requested().job_name == JOB
    # An error of an asset's run in the ingest process does not block the source.
    land(folder, "3.csv", "at,sensor,value\n", 2)
    with (
        pytest.raises(DataError),
        lock_ingest(tables, SOURCE) as held,
        record_error(held) as ingest,
        ingest.other_work(),
    ):
        raise DataError("The table of per_minute can't be written.")
    assert ticks.requested().job_name == JOB


def test_a_blocked_source_is_retried_after_a_possible_fix(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, folder = TidemarkResource(settings).tables, standing(settings)
    land(folder, "2.csv", "at,sensor,value\n", 1)
    ticks = ticks_of(ingest_sensor(Ingestion(SOURCE, connector)), instance, settings)
    keys = set[str | None]()

    def tried_once() -> None:
        request = ticks.requested()
        # The Dagster daemon launches each run key only once.
        assert request.run_key not in keys
        keys.add(request.run_key)
        refuse(tables)
        assert "is blocked" in ticks.skipped()
        assert "is blocked" in ticks.skipped()

    tried_once()
    # The file was changed, with the same size, but is still invalid.
    land(folder, "1.csv", "at,value,sensor\n", 5)
    tried_once()
    # The source's definition was changed.
    mended = replace(SOURCE, columns={**SOURCE.columns, "value": "STRING"})
    ticks.sensor = ticks_of(
        ingest_sensor(
            Ingestion(mended, lambda landing: replace(connector(landing), source=mended))
        ),
        instance,
        settings,
    ).sensor
    tried_once()
    # The file was moved out of the folder.
    (folder / "1.csv").unlink()
    tried_once()
    # A file that was pending then was ingested, which is not a possible fix.
    (tried,) = (
        json.dumps(f.position) for f in open_folder(folder).list_files() if f.name == "2.csv"
    )
    land(folder, "3.csv", "at,sensor,value\n", 6)
    arrive(settings, "sensors", 0, 0, positions=[tried])
    assert "is blocked" in ticks.skipped()
    monkeypatch.setattr(ingest_attempts, "RETRY_AFTER_MICROS", 0)
    assert ticks.requested().job_name == JOB


def test_a_long_backlog_is_retried_after_all_remembered_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest_attempts, "MAX_REMEMBERED_FILES", 2)

    def tried(*names: str) -> ingest_attempts.Attempt:
        return ingest_attempts.Attempt(0, "", {name: [name, 0] for name in names})

    def came(name: str) -> Arrival:
        position = json.dumps({"file": name})
        return Arrival(0, 0, None, None, 1, 0, 0, bytes=1, position=position)

    refused = tried("0001.csv", "0002.csv")
    assert refused.still_applies(tried("0002.csv", "1501.csv"), [came("0001.csv")])
    assert not refused.still_applies(tried("1501.csv"), [came("0001.csv"), came("0002.csv")])


def standing(settings: Settings) -> Path:
    """Create the database folder, which stores refusals, and a landing folder with one file.

    Return the landing folder.
    """
    folder = Path(settings.landing) / "sensors"
    folder.mkdir(parents=True)
    (Path(settings.warehouse) / settings.database).mkdir(parents=True)
    land(folder, "1.csv", "at,sensor,value\n", 0)
    return folder


def refuse(tables: Warehouse) -> None:
    with pytest.raises(DataError), lock_ingest(tables, SOURCE) as held, record_error(held):
        raise DataError("All rows of 1.csv fail on the column 'at'.")


# Starts a broker.
@pytest.mark.nightly
@pytest.mark.slow
def test_kafka_records_launch_an_ingest(
    instance: dg.DagsterInstance, settings: Settings, topics: Topics
) -> None:
    name = topics.create()
    ingestion = Ingestion(CLICKS, lambda _: topics.connector(name))
    ticks = ticks_of(ingest_sensor(ingestion), instance, settings)
    # The position of an empty topic must be recorded before retention deletes any record.
    for offsets in ("[0,0]", "[0,2]"):
        launched = ticks.requested()
        assert f'"offsets":{{"0":{offsets}}}' in (launched.run_key or "")
        topics.send(name, clicks(1, 2))
    topics.delete(name)
    assert ticks.skipped().startswith(f"There is no topic '{name}'")
