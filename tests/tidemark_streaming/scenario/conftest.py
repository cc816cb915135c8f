"""Work for the engine that goes on while other does: each waits for the engine most of its time."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse

SIDE_BY_SIDE = 2


@pytest.fixture(scope="module")
def outcome_of(
    request: pytest.FixtureRequest, engine: Settings, spark: SparkSession
) -> Iterator[Callable[[str], Any]]:
    """What came of a job, by the id of the test that asks; a module's `jobs` gives them by these.

    Those of all tests that were asked for are under way from the first one on.
    """
    jobs = request.module.jobs(Warehouse(spark, engine.warehouse))
    asked = {item.name.partition("[")[2].removesuffix("]") for item in request.session.items}
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    running = {name: pool.submit(job) for name, job in jobs.items() if name in asked}
    yield lambda name: running[name].result()
    pool.shutdown(cancel_futures=True)
