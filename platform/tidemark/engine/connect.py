"""A session on the engine, after making sure within seconds that the engine answers."""

import atexit
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING
from uuid import uuid4

from tidemark.base.settings import Settings
from tidemark.engine.ports import listening
from tidemark.engine.probe import channel, demand_ready, place
from tidemark.engine.rules import exclude_unsafe
from tidemark.engine.token import token_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER = "tidemark"
"""Under whose name the sessions are that later processes find again."""

_GONE = ("INVALID_HANDLE.SESSION_", "RETRIES_EXCEEDED", "NO_ACTIVE_SESSION")
"""How the conditions begin that the client raises when its session is no more."""


def address(settings: Settings) -> str:
    """The Spark Connect address of the engine, with its token."""
    if settings.remote is None:
        # Spark's client sends a token without TLS to this name only, not to 127.0.0.1.
        return f"sc://localhost:{settings.engine_port}/;token={token_of(settings)}"
    if settings.token is None or ";token=" in settings.remote:
        return settings.remote
    return _with(settings.remote, "token", token_of(settings))


def session(settings: Settings, session_id: str | None = None) -> "SparkSession":
    """A new session on the engine, released when the process ends.

    Args:
        session_id: a UUID under which a later process finds the same session again, with its
            streaming queries, for as long as the engine lives; not released.

    Raises:
        EngineError: the engine does not answer, or refuses the token.
    """
    spark = _connected(settings, session_id)
    atexit.register(_leave, spark, address(settings), release=session_id is None)
    return spark


@contextmanager
def visit(settings: Settings, session_id: str) -> "Iterator[SparkSession]":
    """The session of that id for the length of a block; it stays on the engine, as it was.

    For who looks in again and again and must not gather connections.

    Raises:
        EngineError: the engine does not answer, or refuses the token.
    """
    spark = _connected(settings, session_id)
    try:
        yield spark
    finally:
        spark.client.close()


def import_client() -> None:
    """Import Spark's client, which takes a second: for who waits for an engine anyway."""
    import_module("pyspark.sql.connect.session")


def _connected(settings: Settings, session_id: str | None) -> "SparkSession":
    from pyspark.sql.connect.client.retries import DefaultPolicy

    from tidemark.engine.channel import connected

    url = address(settings)
    if session_id is not None:
        # A session is found by its user too, whose default is a variable that differs by process.
        url = _with(_with(url, "session_id", session_id), "user_id", USER)
    elif ";session_id=" not in url:
        url = _with(url, "session_id", str(uuid4()))
    demand_ready(url)
    # The client warns before it raises the error that says the same.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    # It logs, with the server's whole stack, every refusal that is also raised.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    spark = connected(channel(url))
    if settings.remote is None:
        # Spark tries for ten minutes; a server on this machine is there, or has died.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=4)])
    exclude_unsafe(spark)
    return spark


def _leave(spark: "SparkSession", url: str, release: bool) -> None:
    """At the end of a process, keep nothing that nobody finds again, and wait for no dead engine.

    Runs before what Spark's client does at exit, which would try a dead engine for ten minutes.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    # An engine of this machine that has ended has no sessions; asked, Spark's client would warn.
    host, port = place(channel(url))
    if release and not spark.client.is_closed and (host != "localhost" or listening(port)):
        # Spark's own `stop` would log the whole refusal of an engine that has ended before.
        with suppress(PySparkException):
            spark.client.release_session()
    spark.client.close()


def gone(error: Exception) -> bool:
    """Whether an error of Spark's client says that its engine is gone, or is another one by now."""
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    if isinstance(error, SparkConnectGrpcException):
        status, condition = error.getGrpcStatusCode(), error.getCondition() or ""
        lost = status is grpc.StatusCode.UNAVAILABLE
        return lost or condition.startswith(_GONE)
    if isinstance(error, PySparkException):
        return (error.getCondition() or "").startswith(_GONE)
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE


def _with(url: str, name: str, value: str) -> str:
    base = url if "/;" in url else f"{url.rstrip('/')}/"
    return f"{base.rstrip(';')};{name}={value}"
