"""Test the reports of marts built on the command line, with a dbt that builds nothing."""

import dagster as dg
import pytest

from helpers.dagster.built import leaving, unregistered
from helpers.dagster.ticks import of_part
from tidemark.base.settings import Settings
from tidemark_assets.marts import builds_reporter
from tidemark_streaming.dbt import marts
from tidemark_streaming.dbt.marts import Marts

MADE = {
    "unique_id": "model.tidemark.some_mart",
    "status": "success",
    "execution_time": 1.0,
    "message": "OK",
}


@dg.multi_asset(specs=[dg.AssetSpec("some_mart")])
def some_marts() -> None: ...


def test_builds_of_each_database_are_reported_once(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marts, "run_dbt", leaving(MADE))
    one, other = (Marts(settings.model_copy(update={"database": d})) for d in ("one", "other"))
    other.build_marts(unregistered(), "sc://localhost:1", [])
    one.build_marts(unregistered(), "sc://localhost:1", [])
    ticks = of_part(builds_reporter(one, some_marts), instance, settings)
    assert ticks.skipped() == "Reported 1 marts and tests."
    assert ticks.skipped() == "No new builds."
    # Another database, whose build ended earlier.
    ticks.sensor = of_part(builds_reporter(other, some_marts), instance, settings).sensor
    assert ticks.skipped() == "Reported 1 marts and tests."
    assert ticks.skipped() == "No new builds."
    ticks.sensor = of_part(builds_reporter(one, some_marts), instance, settings).sensor
    assert ticks.skipped() == "No new builds."
    one.build_marts(unregistered(), "sc://localhost:1", [])
    assert ticks.skipped() == "Reported 1 marts and tests."
