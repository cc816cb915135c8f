"""The process that owns a stream's query, stored in the query's session.

A query that `tidemark stream` started belongs to the process of that command, which stops the query
at its end. If the process is killed instead, the query continues without its owner: it is orphaned.
A detached query has no owner and is never orphaned. The process of a command on another machine, or
in another container, has exited if it does not renew the lease of the command's record any more.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.hold import is_free, wait_for_renewal
from tidemark.store.workers.owner import Process, this_process
from tidemark.store.workers.record_store import COMMAND, WorkerRecords, worker_records
from tidemark_streaming.base.foreground import STREAM

_OWNER = "tidemark.stream.owner"
"""The session setting with the owning process; empty without one."""

_KIND = f"{COMMAND}{STREAM}"


@contextmanager
def owned_by_process(spark: SparkSession, is_owned: bool) -> Iterator[None]:
    """Record the owner of a query that is started in the `with` block: this process if `is_owned`,
    else none.

    The owner is stored before the start, because this process may be killed as soon as the query
    runs. If the query does not start, the previous owner is restored, because another process may
    have started the query first.
    """
    owner_before = spark.conf.get(_OWNER, "")
    spark.conf.set(_OWNER, json.dumps(this_process()) if is_owned else "")
    try:
        yield
    except BaseException:
        spark.conf.set(_OWNER, owner_before or "")
        raise


def is_orphaned(warehouse: Warehouse, asset: str) -> bool:
    """Return whether the query in the warehouse's session belongs to a process that has exited.

    If this process can't see the owner, wait until the owner renews its lease or loses it.
    """
    owner = _read_owner(warehouse.spark)
    if owner is None:
        return False
    if owner.is_near:
        return owner.has_exited
    records = worker_records(warehouse.location, warehouse.database)
    if _is_lost(records, asset, owner):
        return True
    wait_for_renewal(records, records.read_record(_KIND, asset))
    return _is_lost(records, asset, owner)


def is_own(spark: SparkSession) -> bool:
    """Return whether the session's query belongs to this process."""
    return _read_owner(spark) == this_process()


def _is_lost(records: WorkerRecords, asset: str, owner: Process) -> bool:
    """Return whether a process has lost the work of an asset's stream, or never had it."""
    record = records.read_record(_KIND, asset)
    return is_free(record) or record.owner is None or record.owner.process != owner


def _read_owner(spark: SparkSession) -> Process | None:
    owner = spark.conf.get(_OWNER, "")
    if owner:
        return Process(*json.loads(owner))
    return None
