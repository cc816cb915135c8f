"""The process that owns a stream's query, stored in the query's session.

A query that `tidemark stream` started belongs to the process of that command, which stops the query
at its end. If the process is killed instead, the query continues without its owner: it is orphaned.
A detached query has no owner and is never orphaned. A query whose owner is on another machine does
not count as orphaned either, because this machine can't know whether the owner still exists.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from pyspark.sql import SparkSession

from tidemark.engine.process import has_exited, process_identity

_OWNER = "tidemark.stream.owner"
"""The session setting with the owner: machine, process ID and start time; empty without one."""


@contextmanager
def owned_by_process(spark: SparkSession, is_owned: bool) -> Iterator[None]:
    """Record the owner of a query that is started in the `with` block: this process if `is_owned`,
    else none.

    The owner is stored before the start, because this process may be killed as soon as the query
    runs. If the query does not start, the previous owner is restored, because another process may
    have started the query first.
    """
    before = spark.conf.get(_OWNER, "")
    spark.conf.set(_OWNER, _this_process() if is_owned else "")
    try:
        yield
    except BaseException:
        spark.conf.set(_OWNER, before or "")
        raise


def is_orphaned(spark: SparkSession) -> bool:
    """Return whether the session's query belongs to a process of this machine that has exited."""
    owner = spark.conf.get(_OWNER, "")
    if not owner:
        return False
    machine, pid, born = json.loads(owner)
    if machine != socket.gethostname():
        return False
    try:
        # The system may have given the ID to another process since.
        return process_identity(pid) != born or has_exited(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def is_own(spark: SparkSession) -> bool:
    """Return whether the session's query belongs to this process."""
    return spark.conf.get(_OWNER, "") == _this_process()


def _this_process() -> str:
    pid = os.getpid()
    return json.dumps([socket.gethostname(), pid, process_identity(pid)])
