"""Runs of an asset: all that there are to make, and one that is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.engine.connect import address
from tidemark.run.runner import incremental
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

PLACES = ("before publishing", "before the ledger")
"""Where a run can be killed."""
_DYING = """
import os, signal, sys
from pyspark.sql import SparkSession
from support import PER_MINUTE, renamed
from tidemark.store import ledger
from tidemark.run import runner as run
from tidemark.store.warehouse import Warehouse

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

_, remote, location, database, name, way, where, *limit = sys.argv
if where == "before publishing":
    run.publish = die
else:
    ledger.append = die
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), location, database)
getattr(run, way)(warehouse, renamed(PER_MINUTE, name), **{"limit": int(n) for n in limit})
"""


def run_all(
    warehouse: Warehouse, transform: WindowedTransform, limit: int | None = None
) -> list[RunFacts]:
    """Increments of so many arrivals, until nothing is left."""
    made: list[RunFacts] = []
    while facts := incremental(warehouse, transform, limit=limit):
        made.append(facts)
    return made


def killed(
    engine: Settings, warehouse: Warehouse, name: str, way: str, where: str, *limit: int
) -> bool:
    """Whether a process died that ran `PER_MINUTE` under that name.

    Args:
        way: a function of `tidemark.run`.
        where: one of `PLACES`.
        limit: of an increment, how many arrivals to take at most.
    """
    place = (warehouse.location, warehouse.database)
    told = (address(engine), *place, name, way, where, *map(str, limit))
    done = subprocess.run(
        [sys.executable, "-c", _DYING, *told],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        check=False,
    )
    return done.returncode == -signal.SIGKILL
