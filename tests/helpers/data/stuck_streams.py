"""A description of a streaming query that a test waits for in vain."""

import os
import re
import signal
import time
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from helpers.suite.interruption import HOMES
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.engine.server import managed_of
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse

_DUMP_SECONDS = 5.0
"""The time that Java has to print the stacks of its threads."""
_SHOWN_FRAMES = 30


def describe(query: StreamingQuery, warehouse: Warehouse, transform: Definition) -> str:
    """Return what the query, its thread, its source's timeline and the asset's state say."""
    asset = Asset(warehouse, transform)
    timeline = transform.source.timeline_table
    log_folder = Path(warehouse.path_of(timeline).removeprefix("file:")) / "_delta_log"
    progress = query.lastProgress
    facts = {
        "active": query.isActive,
        "status": query.status,
        "last batch": None if progress is None else (progress.batchId, progress.timestamp),
        "read through": [] if progress is None else [s.endOffset for s in progress.sources],
        "timeline": warehouse.load_rows(timeline, columns=["arrival"])["arrival"].to_pylist(),
        "timeline's files": sorted(path.name for path in log_folder.iterdir()),
        "processed": asset.state.read_last_commit(),
        "published": asset.published_commit_number(),
        "thread": _read_stack(query.runId),
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def _read_stack(run_id: object) -> str:
    """Return the stack of the query's thread in the tests' engine."""
    home = Path(os.environ[HOMES]) / "engine"
    managed = managed_of(Settings(home=home))
    record = managed.find_running()
    if record is None:
        return "the engine does not run"
    already_written = managed.log.stat().st_size
    os.kill(record.pid, signal.SIGQUIT)
    time.sleep(_DUMP_SECONDS)
    with managed.log.open(encoding="utf-8", errors="replace") as log:
        log.seek(already_written)
        dump = log.read()
    start = re.search(rf'^"stream execution thread[^\n]*{run_id}', dump, re.MULTILINE)
    if start is None:
        return "no thread of this query"
    return "\n".join(dump[start.start() :].splitlines()[:_SHOWN_FRAMES])
