"""Test the operation `nightly`: it verifies the published windows, then adds too-late events."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from helpers.dagster.operations import run_operation
from helpers.dagster.steps import QUARTERS
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    T0,
    ingest,
    published,
    reference,
    some_arrivals,
)
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.expect import between
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.jobs.nightly import nightly_operation

ARRIVALS = some_arrivals(count=8)


def night(
    settings: Settings,
    instance: dg.DagsterInstance,
    days: int = 3,
    transform: WindowedTransform = PER_MINUTE,
) -> dg.ExecuteInProcessResult:
    operation = nightly_operation("some", {"per_minute": transform}, lambda _: QUARTERS)
    return run_operation(settings, instance, [operation], "nightly", days=days)


def checks(result: dg.ExecuteInProcessResult) -> list[Any]:
    events = result.get_asset_check_evaluations()
    parities = [e for e in events if e.check_name == "parity"]
    return [(e.check_name, e.passed, e.metadata["too late"].value) for e in parities]


@pytest.mark.slow
def test_a_nightly_run_verifies_recent_days_then_adds_late_events(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    streamed, complete = reference(ARRIVALS), reference(ARRIVALS, complete=True)
    lost = sum(r["events"] for r in complete.values()) - sum(r["events"] for r in streamed.values())
    assert published(warehouse, PER_MINUTE) == streamed
    assert lost > 0

    first = night(here, instance)
    assert first.success
    assert checks(first) == [("parity", True, lost)]
    events = {w: row["events"] for w, row in published(warehouse, PER_MINUTE).items()}
    assert events == {w: row["events"] for w, row in complete.items()}
    known = instance.get_materialized_partitions(dg.AssetKey("per_minute"))
    assert len(known) >= 1

    # Windows with late events pass the next night. A manual change of the table does not.
    assert checks(night(here, instance)) == [("parity", True, lost)]
    assert not check_parity(warehouse, PER_MINUTE).is_equal
    path = warehouse.path_of("per_minute")
    warehouse.spark.sql(
        f"UPDATE delta.`{path}` SET n = n + 1 WHERE window_start = '{format_instant(T0)}'"
    )
    assert checks(night(here, instance))[0][1] is False


def test_a_nightly_run_reports_expectations(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS)
    judged = replace(PER_MINUTE, expectations=(between("n", max_value=0),))
    incremental(warehouse, judged)
    result = night(here, instance, transform=judged)
    assert result.success
    told = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert told == {"parity": True, "between_n_max_value_0": False, "values_fit": True}


def test_a_nightly_run_without_a_closed_day_changes_nothing(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:1], ends=False)
    incremental(warehouse, PER_MINUTE)
    result = night(here, instance)
    assert result.success
    assert checks(result) == []
