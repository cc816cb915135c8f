"""Runs of an asset: all pending ones, and one that is killed."""

import json
import os
import signal

import pytest

from helpers.processes import forked
from tidemark.base.failpoint import FAIL_AT
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.engine.connect import engine_address
from tidemark.run import commit
from tidemark.run.runner import incremental
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

PLACES = commit.STEPS
"""The fail points of a run."""
_DYING = """
import json
import sys
from pyspark.sql import SparkSession
from helpers.data.support import PER_MINUTE, renamed
from tidemark.run import runner as run
from tidemark.store.warehouse import Warehouse

_, remote, place, name, way, *limit = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
getattr(run, way)(warehouse, renamed(PER_MINUTE, name), **{"limit": int(n) for n in limit})
"""


def published_through(warehouse: Warehouse, transform: Definition) -> int:
    """Return the number of the asset's newest published commit, or -1."""
    return Asset(warehouse, transform).published_commit_number()


def run_all(
    warehouse: Warehouse, transform: Definition, limit: int | None = None
) -> list[RunFacts]:
    """Run increments of at most `limit` arrivals until nothing is pending. Return their facts."""
    made: list[RunFacts] = []
    while facts := incremental(warehouse, transform, limit=limit):
        made.append(facts)
    return made


def killed(
    engine: Settings, warehouse: Warehouse, name: str, way: str, where: str, *limit: int
) -> bool:
    """Run `PER_MINUTE` under a name in a process. Return whether the fail point killed it.

    Args:
        way: a function of `tidemark.run`.
        where: one of `PLACES`.
        limit: the maximum number of arrivals of an increment.
    """
    return dies(_DYING, engine, warehouse, where, name, way, *map(str, limit))


def left_behind(warehouse: Warehouse, transform: Definition, patch: pytest.MonkeyPatch) -> None:
    """Run an increment that ends after it commits the state and before it publishes."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with patch.context() as dying:
        dying.setattr(commit, "publish_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            incremental(warehouse, transform)


def dies(script: str, engine: Settings, warehouse: Warehouse, where: str, *told: str) -> bool:
    """Run a script. Return whether a fail point killed it; any other failure is an error.

    Args:
        script: gets the engine's address, the warehouse's location as JSON, and `told`.
        where: one of `PLACES`.
    """
    told = (engine_address(engine), json.dumps(warehouse.place), *told)
    ended = forked.run(script, told, os.environ | {FAIL_AT: where})
    assert ended in (0, -signal.SIGKILL)
    return ended != 0
