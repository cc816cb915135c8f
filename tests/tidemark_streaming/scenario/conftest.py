"""Concurrent jobs for the engine: each mostly waits for the engine."""

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
    """Yield a function that returns the result of a job by the test's ID. A module's `jobs` defines
    the jobs by these IDs. The jobs of all selected tests start with the first test."""
    jobs = request.module.jobs(Warehouse(spark, engine.warehouse))
    asked = {item.name.partition("[")[2].removesuffix("]") for item in request.session.items}
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    running = {name: pool.submit(job) for name, job in jobs.items() if name in asked}
    yield lambda name: running[name].result()
    pool.shutdown(cancel_futures=True)
