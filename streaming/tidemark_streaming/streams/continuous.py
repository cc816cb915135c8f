"""Continuous queries: each runs an asset whenever new arrivals have come in.

A continuous query is a Structured Streaming query over a source's timeline, which has one row per
arrival. Each micro-batch triggers an incremental run through the newest arrival in the batch. The
query of a roll-up reads the ledger instead, so each finished run of any asset triggers a run of the
roll-up. Progress is recorded in the asset's state. Therefore nothing is lost if the query's
checkpoint is deleted, or if Spark misses a version of the table: when Spark lists the transaction
log, it may skip a file that is written at the same time.

A query belongs to a session on the engine, not to the client that started it. Each asset's query
has its own session, whose settings no other stream shares. Any process finds the session by its ID,
and the engine keeps it for as long as the query runs.

A query keeps the definition with which it was started. If a run finds that a newer definition has
written the asset, the run and the query end with `DefinitionChangedError`. The supervisor or the
command that owns the query then restarts it with the current definition.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import NAMESPACE_URL, uuid5

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemark.base.errors import (
    DataError,
    DefinitionChangedError,
    EngineError,
    EngineLostError,
    summarize_error,
)
from tidemark.base.settings import Settings, adopt_settings
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import base_transform
from tidemark.engine.loss import describes_loss
from tidemark.engine.project_code import carry_code, find_code
from tidemark.engine.worker_session import session_of
from tidemark.run import takeover
from tidemark.run.admission import ALL, Admission
from tidemark.run.runner import incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.committers.file_systems import local_folder
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals, read_arrivals
from tidemark.store.refusals import explain_unwritable
from tidemark.store.state import State
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Place, Warehouse
from tidemark_streaming.sink.follow import follow_in_background
from tidemark_streaming.streams.query_owner import is_orphaned, owned_by_process

_Run = Callable[[DataFrame, int], None]
"""The function of a query that gets each batch and its number."""
_STARTS = 4
_STOP_SECONDS = 30
_NOTE = "write the checkpoint of the stream"
_OF_SPARK = "org.apache.spark.sql.streaming.StreamingQueryException: "
"""The prefix of a traceback line with an exception of Spark itself, rather than of a run."""
_CRASHED = "Python worker exited unexpectedly"
"""Spark's message for a query whose worker was killed, or ran out of memory."""
_RAISED = re.compile(
    r"tidemark(?:_\w+)?(?:\.\w+)*\.(?P<kind>\w+): (?P<message>.+)|[\w.]+(?:Error|Exception): .+"
)
"""A traceback line with an exception. For Tidemark's errors, it captures class and message."""


_POLLING_DELAY = "spark.sql.streaming.pollingDelay"
_STORE_POLLING_DELAY = "1s"
"""The pause between two polls of a table in an object store, whose operator charges for each
listing. The engine's own setting is for tables on a disk."""


def stop_orphan(warehouse: Warehouse, definition: Definition) -> None:
    """Stop the asset's query if the process that should stop it no longer exists.

    If that can't be seen from here, wait until it is known, for less than a minute.

    Raises:
        EngineError: the stream is running.
    """
    if find_query(warehouse, definition) is None:
        return
    if not is_orphaned(warehouse, definition.name):
        raise EngineError(
            f"The stream of '{definition.name}' is already running: stop it with `tidemark stream "
            f"{definition.name} --stop`."
        )
    stop_query(warehouse, definition)


def start_query(
    warehouse: Warehouse,
    definition: Definition,
    *,
    admission: Admission = ALL,
    available_now: bool = False,
    watched: bool = False,
) -> StreamingQuery:
    """Start the continuous query of an asset in the warehouse's session.

    An orphaned query is replaced.

    Args:
        admission: the limits of a run, none by default. They do not apply to roll-ups.
        available_now: true if the query stops when all available arrivals are processed.
        watched: true if this process owns the query and will stop it (see `query_owner`).
    """
    stop_orphan(warehouse, definition)
    table = _followed_table(warehouse, definition)
    _clear_stale_checkpoint(warehouse, definition, table)
    run = with_settings(_asset_function(warehouse.place, definition, admission))
    code = find_code(warehouse.spark, Settings())
    writer = (
        warehouse.spark.readStream.format("delta")
        .option("failOnDataLoss", "false")
        # An erasure may rewrite arrivals of a derived source. None of them is new.
        .option("skipChangeCommits", "true")
        .load(warehouse.path_of(table))
        .writeStream.queryName(_query_name(warehouse, definition))
        .option("checkpointLocation", checkpoint_path(warehouse, definition))
        .foreachBatch(run if code is None else carry_code(code, run))
    )
    writer = writer.trigger(availableNow=True) if available_now else writer
    with owned_by_process(warehouse.spark, watched), _set_polling_delay(warehouse):
        return _start_with_retries(writer, definition.name)


def session_id(settings: Settings, asset: str) -> str:
    """Return the ID of the session of an asset's query, which is the same for every process."""
    database = f"{settings.warehouse}/{settings.database}"
    return str(uuid5(NAMESPACE_URL, f"tidemark:{database}/{asset}"))


def find_query(warehouse: Warehouse, definition: Definition) -> StreamingQuery | None:
    """Return the asset's running query in the warehouse's session; None if there is none."""
    name = _query_name(warehouse, definition)
    return next((q for q in warehouse.spark.streams.active if q.name == name), None)


def stop_query(warehouse: Warehouse, definition: Definition) -> bool:
    """Stop the asset's query. Return False if none was running.

    The next run repeats the work that a stopped run had not committed.
    """
    query = find_query(warehouse, definition)
    if query is None:
        return False
    query.stop()
    deadline = time.monotonic() + _STOP_SECONDS
    while query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)
    return True


def failure_reason(failure: PySparkException) -> str:
    """Return why a query ended, in one line: the exception of its run, without a stack trace."""
    if _CRASHED in str(failure):
        return "Its Python worker was killed."
    if has_crashed(failure):
        return "Its engine exited."
    raised = _find_exception(failure)
    if raised is not None and raised["message"]:
        return raised["message"]
    if raised is None or raised[0].startswith(_OF_SPARK):
        # Spark itself writes only the query's progress, so a refused write concerns the checkpoint.
        refused = explain_unwritable(_NOTE, failure)
        if refused is not None:
            return str(refused)
    if raised is None:
        return f"{summarize_error(failure)}."
    return raised[0]


def has_crashed(failure: PySparkException) -> bool:
    """Return whether a query ended because its Python worker or its engine was killed."""
    if _CRASHED in str(failure) or describes_loss(str(failure)):
        return True
    raised = _find_exception(failure)
    return raised is not None and raised["kind"] == EngineLostError.__name__


def is_outdated(failure: PySparkException) -> bool:
    """Return whether a query ended because its definition is not the newest any more."""
    raised = _find_exception(failure)
    return raised is not None and raised["kind"] == DefinitionChangedError.__name__


def checkpoint_path(warehouse: Warehouse, definition: Definition) -> str:
    """Return the path of Spark's checkpoint of the query; it may be deleted at any time."""
    return warehouse.path_of(checkpoints.checkpoint_folder(definition.name))


def query_name(database: str, asset: str) -> str:
    """Return the name of an asset's query; the engine runs at most one query of a name."""
    return f"tidemark {database}.{asset}"


def _find_exception(failure: PySparkException) -> re.Match[str] | None:
    """Find the last line in a failure's text that names an exception. Return its match, or None."""
    lines = str(failure).strip().splitlines()
    return next((raised for line in reversed(lines) if (raised := _RAISED.match(line))), None)


def _start_with_retries(writer: DataStreamWriter, asset: str) -> StreamingQuery:
    for _ in range(_STARTS):
        try:
            return writer.start()
        except PySparkException as error:
            if refused := explain_unwritable(_NOTE, error):
                raise refused from error
            # Spark gives the query's Python worker ten seconds to start, on any machine.
            if "worker failed to connect back" not in str(error):
                raise
    raise EngineError(
        f"The Python worker of the stream of '{asset}' failed {_STARTS} times to start within ten "
        "seconds: the machine is overloaded, or short of memory. Stop other programs, and start "
        "the stream again.",
        retriable=True,
    )


@contextmanager
def _set_polling_delay(warehouse: Warehouse) -> Iterator[None]:
    """Let a query that starts in the block poll as often as suits the warehouse's location."""
    if local_folder(warehouse.location) is not None:
        yield
        return
    conf = warehouse.spark.conf
    # The query keeps the delay. Queries of other warehouses may follow in the session.
    delay_before = str(conf.get(_POLLING_DELAY))
    conf.set(_POLLING_DELAY, _STORE_POLLING_DELAY)
    try:
        yield
    finally:
        conf.set(_POLLING_DELAY, delay_before)


def _query_name(warehouse: Warehouse, definition: Definition) -> str:
    return query_name(warehouse.database, definition.name)


def _followed_table(warehouse: Warehouse, definition: Definition) -> str:
    """Return the table whose commits trigger runs of the asset."""
    if not warehouse.has_table(definition.source.timeline_table):
        raise DataError(
            f"Source '{definition.source.name}' was never ingested: first run `tidemark ingest "
            f"{definition.source.name}`."
        )
    if definition.rolled_up_name is None:
        return definition.source.timeline_table
    ledger.ensure_ledger(warehouse)
    return ledger.TABLE


def with_settings(run: _Run) -> _Run:
    """Return a function that runs in the engine's worker with the settings of this process."""
    values = Settings().export_values()

    def run_with_settings(batch: DataFrame, number: int) -> None:
        adopt_settings(values)
        run(batch, number)

    return run_with_settings


def _asset_function(location: Place, definition: Definition, admission: Admission) -> _Run:
    if definition.rolled_up_name is not None:
        return _rollup_function(location, definition)

    # After this query's first run, a run by another definition means that this query is outdated.
    is_pinned = False

    def run_batch(batch: DataFrame, _: int) -> None:
        nonlocal is_pinned
        arrivals = read_arrivals(batch)
        if not arrivals:
            return
        whole = len(arrivals) == arrivals[-1].arrival - arrivals[0].arrival + 1
        recent = RecentArrivals(arrivals) if whole else NO_ARRIVALS
        warehouse = _open_in_worker(batch, location)
        through = arrivals[-1].arrival
        follow_in_background(location, definition, lambda: _open_in_worker(batch, location))
        more = True
        while more:
            done = incremental(
                warehouse,
                definition,
                last_arrival=through,
                limit=admission,
                recent=recent,
                pinned_definition=is_pinned,
            )
            is_pinned = is_pinned or done is not None
            more = bool(admission) and done is not None

    return run_batch


def _open_in_worker(batch: DataFrame, location: Place) -> Warehouse:
    """Return the warehouse for a micro-batch, in a worker of the engine."""
    return Warehouse(session_of(batch), *location)


def _rollup_function(location: Place, definition: Definition) -> _Run:
    # After the base has run by the definition that this query knows, a run of the base by another
    # definition means that this query is outdated.
    is_pinned = False

    def run_batch(batch: DataFrame, _: int) -> None:
        nonlocal is_pinned
        warehouse = _open_in_worker(batch, location)
        state = State(warehouse, definition)
        # The run does not depend on the batch's rows: a run of the base may have finished before
        # the batch. If the base has no state yet, its first run adds a row to the ledger, which
        # triggers the next batch.
        if state.table_id() is None:
            return
        known = is_pinned or state.read_last_commit().definition == compute_fingerprint(
            base_transform(definition)
        )
        incremental(warehouse, definition, pinned_definition=is_pinned)
        is_pinned = known

    return run_batch


def _clear_stale_checkpoint(warehouse: Warehouse, definition: Definition, table: str) -> None:
    """Remove the checkpoint of the asset's query if the query can't resume from it.

    The query must not be running. Spark creates no batch for rows that the checkpoint records as
    read, even if the asset must process them again: it was dropped or rolled back, one of its runs
    was killed before it published, or a roll-up has other windows now. Spark also refuses the
    checkpoint of a different table, for example if the source was renamed or its log recreated.

    Args:
        table: the table that the query reads.
    """
    if not _is_checkpoint_of(warehouse, definition, table) or _is_behind(warehouse, definition):
        checkpoints.remove_checkpoint(warehouse, definition.name)


def _is_checkpoint_of(warehouse: Warehouse, definition: Definition, table: str) -> bool:
    """Return whether the checkpoint belongs to the given table and to no other."""
    head = warehouse.find_head(table)
    read_tables = {read.table for read in checkpoints.read_offsets(warehouse, definition.name)}
    return head is not None and read_tables == {head.table_id}


def _is_behind(warehouse: Warehouse, definition: Definition) -> bool:
    """Return whether the asset has unprocessed arrivals or unpublished runs.

    Return True also for a roll-up whose next run replaces all rows, because its definition changed.
    """
    asset = Asset(warehouse, definition)
    last = asset.state.read_last_commit()
    if asset.published_commit_number() < last.commit_number:
        return True
    if asset.rolls_up and takeover.is_renewed(asset):
        return True
    newest = None if asset.rolls_up else asset.log.find_last_arrival()
    return newest is not None and last.after.at.arrival < newest.arrival
