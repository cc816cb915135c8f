"""Watchers: the process to which a stream's query belongs, stored in the query's session.

The query of `tidemark stream` belongs to that process, which stops it when it ends. If the process
was killed instead, the query continues without an owner: it is abandoned. A query without a watcher
runs on its own and is never abandoned. A query whose watcher is on another machine is not
considered abandoned either, because this machine can't know.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from pyspark.sql import SparkSession

from tidemark.engine.process import has_exited, process_identity

_WATCHER = "tidemark.stream.watcher"
"""A session setting: the machine, the process ID and the start time of the process."""


@contextmanager
def watching(spark: SparkSession, watched: bool) -> Iterator[None]:
    """Start a query in the block, which belongs to this process if `watched`, or else to none.

    The owner is stored before the start, because this process may be killed as soon as the query
    runs. It is restored if the query does not start, because another process may have been faster.
    """
    before = spark.conf.get(_WATCHER, "")
    spark.conf.set(_WATCHER, _own() if watched else "")
    try:
        yield
    except BaseException:
        spark.conf.set(_WATCHER, before or "")
        raise


def is_orphaned(spark: SparkSession) -> bool:
    """Return whether the session's query belongs to a process of this machine that has exited."""
    owner = spark.conf.get(_WATCHER, "")
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


def own(spark: SparkSession) -> bool:
    """Return whether the session's query belongs to this process."""
    return spark.conf.get(_WATCHER, "") == _own()


def _own() -> str:
    pid = os.getpid()
    return json.dumps([socket.gethostname(), pid, process_identity(pid)])
