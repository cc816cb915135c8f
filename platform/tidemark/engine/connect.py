"""Open sessions on the engine, after checking within seconds that the engine answers."""

import atexit
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from uuid import uuid4

from tidemark.base.errors import EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine.ports import is_listening
from tidemark.engine.probe import RefusedTokenError, create_channel, demand_ready, host_and_port
from tidemark.engine.project_code import send_code
from tidemark.engine.queries.rules import exclude_unsafe
from tidemark.engine.token import is_renewable, renew_token, token_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = re.compile(r";token=(?P<token>[^;]*)")

USER = "tidemark"
"""The user id of sessions whose id the caller specifies. The engine finds a session by both ids."""


def engine_address(settings: Settings) -> str:
    if settings.remote is None:
        # Spark's client sends a token without TLS to this name only, not to 127.0.0.1.
        return add_parameter(settings.engine_address, "token", token_of(settings))
    if _TOKEN.search(settings.remote) is not None:
        return _TOKEN.sub(_quote_token, settings.remote)
    if settings.token is None:
        return settings.remote
    return add_parameter(settings.remote, "token", token_of(settings))


def reach_engine(settings: Settings, session_id: str | None = None) -> str:
    """Return the address of a running engine, after checking that it answers.

    If the engine refuses the token that a command has printed, the command runs again.

    Args:
        session_id: the UUID of a session of the user `USER`, which the address names. By default,
            the address names no session.

    Raises:
        EngineError: the engine does not answer, or refuses the token.
    """
    try:
        return _demand_ready(settings, session_id)
    except RefusedTokenError:
        if not renew_token(settings):
            raise
    return _demand_ready(settings, session_id)


def _demand_ready(settings: Settings, session_id: str | None) -> str:
    url = engine_address(settings)
    if session_id is not None:
        # The server looks up a session by its user too. The default user comes from a variable that
        # differs between processes.
        url = add_parameter(url, "session_id", session_id)
        url = add_parameter(url, "user_id", USER)
    demand_ready(url, is_remote=settings.is_remote)
    return url


def connect_session(settings: Settings, session_id: str | None = None) -> "SparkSession":
    """Return a session on the engine.

    A new session of an engine elsewhere has the project's code, for Python functions in queries.

    Args:
        session_id: the UUID of a session that is created if the engine does not have it. The
            session is not released when this process exits: as long as the engine runs, a later
            process finds it again by this id, with its streaming queries. None for a new session
            that is released when this process exits.

    Raises:
        EngineError: the engine does not answer, or refuses the token.
    """
    spark = _connect_client(settings, session_id)
    atexit.register(_leave_session, spark, engine_address(settings), release=session_id is None)
    if session_id is None:
        send_code(spark, settings)
    return spark


@contextmanager
def visit_session(settings: Settings, session_id: str) -> "Iterator[SparkSession]":
    """Connect to the session with this id for the duration of a `with` block.

    The connection is closed at the end of the block, but the session stays on the engine. This is
    for processes that use a session repeatedly and must not accumulate connections.

    Raises:
        EngineError: the engine does not answer, or refuses the token.
    """
    spark = _connect_client(settings, session_id)
    try:
        yield spark
    finally:
        spark.client.close()


def import_client() -> None:
    """Import Spark's client, so that later imports of it take no time.

    The import takes a second. Callers do it while they wait for the engine to start.
    """
    import_module("pyspark.sql.connect.session")


def _connect_client(settings: Settings, session_id: str | None) -> "SparkSession":
    from tidemark.engine.channel import open_session

    url = reach_engine(settings, session_id)
    if ";session_id=" not in url:
        url = add_parameter(url, "session_id", str(uuid4()))
    read_token = partial(token_of, settings) if is_renewable(settings) else None
    spark = open_session(create_channel(url, read_token))
    prepare_session(spark, settings)
    return spark


def prepare_session(spark: "SparkSession", settings: Settings) -> None:
    """Set up a session that another library may have opened.

    The session reports the loss of its engine as `EngineLostError`, within seconds if the engine is
    on this machine and otherwise within a minute, and excludes an optimizer rule that can lose
    rows.
    """
    from tidemark.engine.channel import RenewedToken
    from tidemark.engine.loss import recognize_loss
    from tidemark.engine.reachability import watch_engine

    # The client logs the server's stack trace for every error that it raises.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    recognize_loss(spark)
    if settings.is_remote:
        limit_remote_retries(spark)
        watch_engine(spark, engine_address(settings))
    else:
        limit_retries(spark)
    if is_renewable(settings):
        policies = list(spark.client.get_retry_policies())
        policies.append(RenewedToken(partial(renew_token, settings)))
        spark.client.set_retry_policies(policies)
    exclude_unsafe(spark)


def limit_retries(spark: "SparkSession") -> None:
    """Let requests of a session fail soon, because its engine is on this machine.

    Spark retries for ten minutes, but a server on this machine either answers or has died.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=4)])


def limit_remote_retries(spark: "SparkSession") -> None:
    """Let requests of a session fail within a minute, because its engine is on another machine.

    The retries last half a minute: longer than the interruption of a connection. A server that
    exits loses its sessions, so that retries can't succeed once it is back.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=7, max_backoff=8_000)])


def _leave_session(spark: "SparkSession", url: str, release: bool) -> None:
    """Close the connection of a session at process exit, and release the session if `release`.

    This exit handler runs before that of Spark's client, which would retry a stopped engine for ten
    minutes.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    # A stopped engine on this machine has no sessions, and Spark's client would log a warning.
    host, port = host_and_port(create_channel(url))
    if release and not spark.client.is_closed and (host != "localhost" or is_listening(port)):
        # Spark's own `stop` would log an error if the engine has already stopped.
        with suppress(PySparkException, EngineLostError):
            spark.client.release_session()
    spark.client.close()


def add_parameter(url: str, name: str, value: str) -> str:
    """Return the address of an engine with a further parameter."""
    base = url if "/;" in url else f"{url.rstrip('/')}/"
    return f"{base.rstrip(';')};{name}={quote(value, safe='')}"


def _quote_token(parameter: re.Match[str]) -> str:
    """Return the parameter in the form that Spark's client reads, also if it is not encoded."""
    return f";token={quote(unquote(parameter['token']), safe='')}"
