"""Continuous queries: the same run, again and again, as arrivals come.

A continuous query is a Structured Streaming query over a source's timeline, each row of which is a
whole arrival; each micro-batch is an incremental run through the newest arrival in it. That of a
roll-up is over the ledger, and runs whenever something has run. The state knows where it stands, so
the query's checkpoint holds nothing that would be missed. Nor does a version of the table that
Spark does not find: a listing of the log may pass over one, as files come while it goes on.

A query belongs to a session on the engine, not to the client that started it. Each asset's query
has a session of its own, whose settings no other stream shares: any process finds it again by its
id, and the engine keeps it for as long as the query runs.

A query keeps the definition with which it was started. Where a run meets what a newer definition
has written, it ends with `DefinitionChanged`, and so does the query: who looks after it starts it
again with the definition that there is then.
"""

import re
import time
from collections.abc import Callable
from uuid import NAMESPACE_URL, uuid5

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemark.base.errors import DataError, DefinitionChanged, EngineError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.rollup import counting
from tidemark.run.admission import ALL, Admission
from tidemark.run.runner import incremental
from tidemark.store import checkpoints, ledger
from tidemark.store.arrival import NOTHING, Recent, arrivals
from tidemark.store.refusals import unwritable
from tidemark.store.state import State
from tidemark.store.warehouse import Place, Warehouse
from tidemark_streaming import resuming
from tidemark_streaming.outbox.follow import attend
from tidemark_streaming.watcher import abandoned, watching

_STARTS = 4
_NOTE = "write the checkpoint of the stream"
_OF_SPARK = "org.apache.spark.sql.streaming.StreamingQueryException: "
"""How the line begins that says what Spark itself met, and not a run."""
_CRASHED = "Python worker exited unexpectedly"
"""What Spark says of a query whose worker was killed, or took more memory than there is."""
_RAISED = re.compile(
    r"tidemark\.base\.errors\.(?P<kind>\w+): (?P<sentence>.+)|[\w.]+(?:Error|Exception): .+"
)
"""The line of a traceback that says what was raised; of our own errors, their sentence."""


def start(
    warehouse: Warehouse,
    transform: Definition,
    *,
    admission: Admission = ALL,
    available_now: bool = False,
    watched: bool = False,
) -> StreamingQuery:
    """Start the continuous query of a transform, in the warehouse's session, in the place of one
    that is abandoned.

    Args:
        admission: what a run takes in at most; by default all that has come, as that of a roll-up
            always does.
        available_now: stop when all that has come is taken in.
        watched: it belongs to this process, which will stop it (`watcher`).

    Raises:
        DataError: the source was never ingested, or the query's checkpoint can't be changed.
        EngineError: the query runs already in this session, or its worker does not come up.
    """
    if find(warehouse, transform) is not None:
        if not abandoned(warehouse.spark):
            raise EngineError(
                f"The stream of '{transform.name}' is running already: stop it first."
            )
        stop(warehouse, transform)
    table = _followed(warehouse, transform)
    resuming.clear(warehouse, transform, table)
    writer = (
        warehouse.spark.readStream.format("delta")
        .option("failOnDataLoss", "false")
        .load(warehouse.path(table))
        .writeStream.queryName(_name(warehouse, transform))
        .option("checkpointLocation", checkpoint(warehouse, transform))
        .foreachBatch(_batch(warehouse.place, transform, admission))
    )
    writer = writer.trigger(availableNow=True) if available_now else writer
    with watching(warehouse.spark, watched):
        return _started(writer)


def session_id(settings: Settings, asset: str) -> str:
    """The session in which an asset's query lives: the same for every process that asks."""
    place = f"{settings.warehouse}/{settings.database}"
    return str(uuid5(NAMESPACE_URL, f"tidemark:{place}/{asset}"))


def find(warehouse: Warehouse, transform: Definition) -> StreamingQuery | None:
    """The transform's running query in the warehouse's session, if there is one."""
    name = _name(warehouse, transform)
    return next((q for q in warehouse.spark.streams.active if q.name == name), None)


def stop(warehouse: Warehouse, transform: Definition, wait: float = 30) -> bool:
    """Stop the transform's query; False where none ran. What a run had not committed is done again
    by the next one."""
    query = find(warehouse, transform)
    if query is None:
        return False
    query.stop()
    deadline = time.monotonic() + wait
    while query.isActive and time.monotonic() < deadline:
        time.sleep(0.1)
    return True


def why(failure: PySparkException) -> str:
    """Why a query ended, in one line: what its run raised, of the whole that Spark tells."""
    if crashed(failure):
        return "Its Python worker was killed."
    found = _raised(failure)
    if found is not None and found["sentence"]:
        return found["sentence"]
    if found is None or found[0].startswith(_OF_SPARK):
        # Spark itself writes nothing but where the query stands.
        refused = unwritable(_NOTE, failure)
        if refused is not None:
            return str(refused)
    if found is None:
        return next(iter(str(failure).strip().splitlines()), type(failure).__name__)
    return found[0]


def crashed(failure: PySparkException) -> bool:
    """Whether a query ended because its worker was killed, which says nothing of its definition."""
    return _CRASHED in str(failure)


def outdated(failure: PySparkException) -> bool:
    """Whether a query ended because its definition is not the newest any more."""
    found = _raised(failure)
    return found is not None and found["kind"] == DefinitionChanged.__name__


def checkpoint(warehouse: Warehouse, transform: Definition) -> str:
    """Where Spark keeps the query's checkpoint; it may be deleted at any time."""
    return warehouse.path(checkpoints.folder(transform.name))


def name(database: str, asset: str) -> str:
    """What an asset's query is called; the engine runs one of a name at a time."""
    return f"tidemark {database}.{asset}"


def _raised(failure: PySparkException) -> re.Match[str] | None:
    """The last line of a failure's text that says what was raised."""
    lines = str(failure).strip().splitlines()
    return next((found for line in reversed(lines) if (found := _RAISED.match(line))), None)


def _started(writer: DataStreamWriter) -> StreamingQuery:
    for _ in range(_STARTS):
        try:
            return writer.start()
        except PySparkException as error:
            if refused := unwritable(_NOTE, error):
                raise refused from error
            # Spark gives the query's Python worker ten seconds to come up, on any machine.
            if "worker failed to connect back" not in str(error):
                raise
    raise EngineError(
        f"The stream's Python worker did not come up in ten seconds, {_STARTS} times: the machine "
        "is too busy, or short of memory.",
        passing=True,
    )


def _name(warehouse: Warehouse, transform: Definition) -> str:
    return name(warehouse.database, transform.name)


def _followed(warehouse: Warehouse, transform: Definition) -> str:
    """The table each commit of which has the transform run."""
    if not warehouse.exists(transform.source.timeline_table):
        raise DataError(
            f"Source '{transform.source.name}' was never ingested: run `tidemark ingest "
            f"{transform.source.name}` first."
        )
    if transform.follows is None:
        return transform.source.timeline_table
    ledger.create(warehouse)
    return ledger.TABLE


def _batch(
    place: Place, transform: Definition, admission: Admission
) -> Callable[[DataFrame, int], None]:
    if transform.follows is not None:
        return _following(place, transform)

    # Once it has run, another definition's run means that this query goes by an earlier one.
    standing = False

    def run(batch: DataFrame, _: int) -> None:
        nonlocal standing
        told = arrivals(batch)
        if not told:
            return
        whole = len(told) == told[-1].arrival - told[0].arrival + 1
        recent = Recent(told) if whole else NOTHING
        warehouse, through = Warehouse(batch.sparkSession, *place), told[-1].arrival
        attend(place, transform, lambda: Warehouse(batch.sparkSession, *place))
        more = True
        while more:
            done = incremental(
                warehouse,
                transform,
                through=through,
                limit=admission,
                recent=recent,
                standing=standing,
            )
            standing = standing or done is not None
            more = bool(admission) and done is not None

    return run


def _following(place: Place, transform: Definition) -> Callable[[DataFrame, int], None]:
    # Once its base was run by the definition that it knows, another one's run means that this
    # query goes by an earlier one.
    standing = False

    def run(batch: DataFrame, _: int) -> None:
        nonlocal standing
        warehouse = Warehouse(batch.sparkSession, *place)
        state = State(warehouse, transform)
        # Whichever run a batch tells of, and where it tells of none: one of the base's may have
        # come before it, or there was none yet, whose row in the ledger will bring the next batch.
        if state.life() is None:
            return
        known = standing or state.last().definition == fingerprint(counting(transform))
        incremental(warehouse, transform, standing=standing)
        standing = known

    return run
