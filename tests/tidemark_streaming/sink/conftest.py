"""The published output of runs, recorded once for all tests of the sink that need no engine."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.recorded import Recorded
from helpers.data.support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.windows import Window
from tidemark.expect import between
from tidemark.quality import quarantine
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.warehouse import Warehouse


@pytest.fixture(scope="session")
def recording(engine: Settings, spark: SparkSession) -> Callable[[Window], Recorded]:
    """Return a function that records, per window, an asset with every kind of change: windows that
    appear, fire once and repeatedly, are quarantined and released, become final, and are recomputed
    and corrected."""

    @cache
    def made(window: Window) -> Recorded:
        warehouse = Warehouse(spark, engine.warehouse, f"test_{uuid4().hex[:12]}", registered=False)
        asset = replace(
            PER_MINUTE,
            window=window,
            aggregates={"n": agg.count(), "high": agg.count(where="value > 0.5")},
            trigger=Trigger(early=EachArrival()),
            accumulation="discarding",
            expectations=(between("n", 0, 9),),
        )
        recorded = Recorded(warehouse, asset)
        ingest(warehouse, READINGS, some_arrivals(), ends=False)
        incremental(warehouse, asset, limit=2)
        recorded.mark()
        incremental(warehouse, asset, limit=1)
        recorded.mark()
        backfill(warehouse, asset, *minutes(0, 2))
        recorded.mark()
        incremental(warehouse, asset)
        recorded.mark()
        ingest(warehouse, READINGS, [])
        incremental(warehouse, asset)
        recorded.mark()
        assert correct(warehouse, asset) is not None
        recorded.mark()
        assert quarantine.release_windows(warehouse, asset, quarantine.Choice())
        recorded.mark()
        return recorded

    return made
