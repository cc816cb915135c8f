"""Watchers: to which process a stream's query belongs, put down in the query's session.

The query of `tidemark stream` belongs to that process, which stops it when it ends. Where it was
killed instead, the query works on, and nobody would stop it: it is abandoned. A query that was left
to run by itself has no watcher, and is never abandoned. Neither is one whose watcher is a process
of another machine, of which nothing can be known here.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from pyspark.sql import SparkSession

from tidemark.engine.process import birth

_WATCHER = "tidemark.stream.watcher"
"""A setting of the session: the machine, the process's id and its birth."""


@contextmanager
def watching(spark: SparkSession, watched: bool) -> Iterator[None]:
    """Start a query in the block: it will belong to this process, or to none.

    It is said beforehand, as this process may be killed as soon as the query runs; and taken back
    where the query is not started, as another process may have been quicker.
    """
    before = spark.conf.get(_WATCHER, "")
    spark.conf.set(_WATCHER, _own() if watched else "")
    try:
        yield
    except BaseException:
        spark.conf.set(_WATCHER, before or "")
        raise


def abandoned(spark: SparkSession) -> bool:
    """Whether the session's query belongs to a process of this machine that is gone."""
    told = spark.conf.get(_WATCHER, "")
    if not told:
        return False
    machine, pid, born = json.loads(told)
    if machine != socket.gethostname():
        return False
    try:
        # The system may have given its number to another process by now.
        return birth(pid) != born or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def own(spark: SparkSession) -> bool:
    """Whether the session's query belongs to this very process."""
    return spark.conf.get(_WATCHER, "") == _own()


def _own() -> str:
    pid = os.getpid()
    return json.dumps([socket.gethostname(), pid, birth(pid)])
