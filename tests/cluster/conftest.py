"""Fixtures: engines of two machines, with one warehouse in an object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cluster.machine import Machine, create_machine
from helpers.cluster.store_jars import engine_settings, fetch_store_jars
from helpers.processes.object_store import BUCKET, ObjectStore, serve_store


@pytest.fixture(scope="session")
def store_jars() -> list[Path]:
    return fetch_store_jars()


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_store() as store:
        yield store


@pytest.fixture(scope="module")
def machines(
    store: ObjectStore, store_jars: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Machine]]:
    """Yield two machines, each with an engine, which have one warehouse in the object store."""
    folder = tmp_path_factory.mktemp("machines")
    shared = {
        "TIDEMARK_WAREHOUSE": f"{BUCKET}/warehouse",
        "TIDEMARK_LANDING": f"{BUCKET}/landing",
        **engine_settings(store_jars),
    }
    machines = [create_machine(folder / name, **shared) for name in ("first", "second")]
    yield machines
    for machine in machines:
        machine.call("down")
