"""Sensors of arrivals on real Delta tables and a real instance of Dagster, without an engine."""

import json
import time
from dataclasses import replace

import dagster as dg

from landing import SOURCE, feed, land
from support import PER_MINUTE
from tables import arrive, ran
from ticks import of as ticks_of
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark_assets import arrivals
from tidemark_streaming import wishes
from tidemark_streaming.feed import Inlet
from topics import CLICKS, Topics, clicks

ASSETS = {name: replace(PER_MINUTE, name=name) for name in ("one", "two")}


def run_under_way(instance: dg.DagsterInstance, job: str) -> None:
    instance.add_run(
        dg.DagsterRun(job_name=job, run_id="11111111", status=dg.DagsterRunStatus.STARTED)
    )


def test_what_arrived_launches_one_run_of_the_assets_that_are_behind(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", ASSETS), instance, settings)
    assert ticks.skipped() == "All windows are up to date with what has arrived."
    arrive(settings, "readings", 0, 3)
    assert ticks.launched() == ["one", "two"]
    ran(settings, "one", seq=0, through=3, watermark=0)
    ran(settings, "two", seq=0, through=3, watermark=0)
    assert ticks.skipped() == "All windows are up to date with what has arrived."
    arrive(settings, "readings", 4, 4)
    ran(settings, "two", seq=1, through=4, watermark=0)
    assert ticks.launched() == ["one"]


def test_nothing_is_launched_twice(instance: dg.DagsterInstance, settings: Settings) -> None:
    ticks = ticks_of(arrivals.arrivals("some", ASSETS), instance, settings)
    arrive(settings, "readings", 0, 3)
    first = ticks.tick()
    assert ticks.skipped().startswith("The run for one, two did not bring them up to date")
    ticks.cursor = None
    again = ticks.tick()
    assert isinstance(first, dg.SensorResult)
    assert isinstance(again, dg.SensorResult)
    # The daemon launches a run key once.
    assert (first.run_requests or [])[0].run_key == (again.run_requests or [])[0].run_key
    run_under_way(instance, "some_catch_up")
    arrive(settings, "readings", 4, 4)
    assert ticks.skipped() == "A run of some_catch_up is under way: one, two wait for it."


def test_a_backfill_of_a_range_does_not_bring_an_asset_up_to_date(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", ASSETS), instance, settings)
    arrive(settings, "readings", 0, 3)
    ran(settings, "one", 0, 3, 0, mode="backfill")
    ran(settings, "two", 0, 3, 0, mode="backfill", window_from=as_datetime(0))
    assert ticks.launched() == ["two"]


def test_an_asset_that_a_stream_keeps_is_left_to_it(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.arrivals("some", ASSETS), instance, settings)
    arrive(settings, "readings", 0, 3)
    wishes.wish(settings, "one")
    assert ticks.launched() == ["two"]


def test_a_tick_over_fifty_assets_and_a_long_ledger_is_fast(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    assets = {f"a{n}": replace(PER_MINUTE, name=f"a{n}") for n in range(50)}
    arrive(settings, "readings", 0, 9)
    for seq in range(60):
        ran(settings, assets, seq, through=seq - 50, watermark=0)
    ticks = ticks_of(arrivals.arrivals("some", assets), instance, settings)
    begun = time.monotonic()
    assert ticks.skipped() == "All windows are up to date with what has arrived."
    assert time.monotonic() - begun < 5


def test_a_file_that_lands_launches_an_ingest(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    ticks = ticks_of(arrivals.landing(Inlet(SOURCE, feed)), instance, settings)
    folder = settings.landing / "sensors"
    assert ticks.skipped().startswith("Nothing has ever landed for 'sensors'")
    folder.mkdir(parents=True)
    assert ticks.skipped() == "Nothing new has landed for 'sensors'."
    land(folder, "1.csv", "at,sensor,value\n", 0)
    land(folder, "2.csv", "at,sensor,value\n", 1)
    request = ticks.tick()
    assert isinstance(request, dg.RunRequest)
    assert "2.csv" in (request.run_key or "")

    size = (folder / "1.csv").stat().st_size
    known = [json.dumps({"file": f"{n}.csv", "bytes": size}) for n in (1, 2)]
    arrive(settings, "sensors", 0, 1, positions=known)
    assert ticks.skipped() == "Nothing new has landed for 'sensors'."

    land(folder, "3.csv", "at,sensor,value\n", 2)
    run_under_way(instance, "sensors_ingest")
    assert ticks.skipped() == "An ingest of 'sensors' is under way."
    land(folder, "1.csv", "at,sensor,value\n,a,1\n", 0)
    assert "has changed since it was ingested" in ticks.skipped()


def test_records_of_kafka_launch_an_ingest(
    instance: dg.DagsterInstance, settings: Settings, topics: Topics
) -> None:
    name = topics.create()
    inlet = Inlet(CLICKS, lambda _: topics.feed(name))
    ticks = ticks_of(arrivals.landing(inlet), instance, settings)
    assert ticks.skipped() == "Nothing new has landed for 'clicks'."
    topics.send(name, clicks(1, 2))
    first = ticks.tick()
    assert isinstance(first, dg.RunRequest)
    assert '"offsets":{"0":[0,2]}' in (first.run_key or "")
    topics.delete(name)
    assert ticks.skipped().startswith(f"There is no topic '{name}'")
