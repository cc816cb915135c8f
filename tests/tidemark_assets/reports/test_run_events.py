"""Test the partition reports of a step: they keep its run, and the window sensor adds none.

All keys have a prefix.
"""

import dagster as dg
import pytest

from helpers.dagster.steps import MINUTES, partitions_told
from helpers.dagster.ticks import of_part
from helpers.data.runs import left_behind
from helpers.data.support import MINUTE, PER_MINUTE, READINGS, ingest, some_arrivals
from tidemark.base.settings import Settings
from tidemark.define import window_columns
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import with_prefix
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.sensors.arrivals import arrivals
from tidemark_assets.sensors.partitions import partitions_reporter

DEV = with_prefix("dev")
ARRIVALS = some_arrivals(count=9)
NONE = "No new runs except those that report themselves."


@pytest.mark.nightly
@pytest.mark.slow
def test_partitions_closed_by_an_increment_keep_its_run(
    engine: Settings,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    assets = {"per_minute": PER_MINUTE}
    definitions = dg.Definitions.merge(
        arrivals("some", [], assets, lambda _: MINUTES, DEV),
        dg.Definitions(
            resources={"dev_tidemark": TidemarkResource(here)}, executor=dg.in_process_executor
        ),
    )
    job = definitions.resolve_job_def("dev_some_catch_up")
    sensor = partitions_reporter(assets, lambda _: MINUTES, 60 * MINUTE, DEV)
    ticks = of_part(sensor, instance, here, DEV)

    def caught_up() -> str:
        done = job.execute_in_process(instance=instance)
        assert done.success
        return done.run_id

    def closed() -> set[str]:
        """Return the closed minutes that have windows."""
        last = Log(warehouse, READINGS).find_last_arrival()
        assert last is not None
        rows = warehouse.read_frame("per_minute").select("window_start", "window_end").collect()
        passed = [r for r in rows if r["window_end"].timestamp() * 1e6 <= (last.after or 0)]
        return {MINUTES.get_partition_key_for_timestamp(r[0].timestamp()) for r in passed}

    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    first = caught_up()
    told = partitions_told(instance, "dev/per_minute")
    assert {run for _, run in told} == {first}
    assert {key for key, _ in told} == closed() != set()
    assert len(told) == len(closed())
    assert ticks.skipped() == NONE
    for table, columns in (
        ("late", window_columns.late_columns),
        ("late_loss", window_columns.late_loss_columns),
    ):
        there = warehouse.read_frame(f"per_minute_{table}").schema
        assert columns(PER_MINUTE).keys() == set(there.names)
        for name, kind in columns(PER_MINUTE).items():
            assert kind in (None, there[name].dataType.simpleString()), name

    def types_told() -> dict[str, str]:
        """Return the column types of the newest materialization."""
        event = instance.get_latest_materialization_event(dg.AssetKey(["dev", "per_minute"]))
        assert event is not None
        assert event.asset_materialization is not None
        told = event.asset_materialization.metadata["dagster/column_schema"].value
        assert isinstance(told, dg.TableSchema)
        return {column.name: column.type for column in told.columns}

    fields = warehouse.read_frame("per_minute").schema.fields
    types = {field.name: field.dataType.simpleString() for field in fields}
    assert types_told() == types

    # An increment finishes another run's commit. The sensor reports it, as for a stream.
    ingest(warehouse, READINGS, ARRIVALS[3:6], ends=False)
    left_behind(warehouse, PER_MINUTE, monkeypatch)
    caught_up()
    assert partitions_told(instance, "dev/per_minute") == told
    assert "partitions reported" in ticks.skipped()
    reported = partitions_told(instance, "dev/per_minute")
    assert {run for _, run in reported[len(told) :]} == {""}
    assert {key for key, _ in reported} == closed()
    assert types_told() == types

    ingest(warehouse, READINGS, ARRIVALS[6:])
    third = caught_up()
    newest = partitions_told(instance, "dev/per_minute")[len(reported) :]
    assert {run for _, run in newest} == {third}
    assert {key for key, _ in (*reported, *newest)} == closed()
    assert ticks.skipped() == NONE
