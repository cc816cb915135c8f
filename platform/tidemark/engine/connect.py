"""A session on the engine, after making sure within seconds that the engine answers.

Spark's client tries an address that does not answer for ten minutes before it says so, and a
wrong token looks to it like a server that may come yet: so ask first, with a deadline.
"""

import atexit
import logging
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.base.tls import NO_TLS, distrusted, speaks_tls
from tidemark.engine.rules import exclude_unsafe
from tidemark.engine.token import token_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.engine.channel import Channel

DEADLINE = 8.0
"""Seconds that an engine has to answer."""

AUTHORITIES = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""The variable by which gRPC, in any process, knows whom to trust."""

USER = "tidemark"
"""Under whose name the sessions are that later processes find again."""


_GONE = ("INVALID_HANDLE.SESSION_", "RETRIES_EXCEEDED", "NO_ACTIVE_SESSION")
"""How the conditions begin that the client raises when its session is no more."""


class Answer(Enum):
    """What an address said when asked."""

    READY = "ready"
    REFUSED = "refused"
    SILENT = "silent"


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
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
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
    host, port = _place(channel(url))
    if release and not spark.client.is_closed and (host != "localhost" or listening(port)):
        # Spark's own `stop` would log the whole refusal of an engine that has ended before.
        with suppress(PySparkException):
            spark.client.release_session()
    spark.client.close()


def demand_ready(url: str) -> None:
    """Raise the sentence that says why the engine at `url` can't be used, if it can't."""
    name = url.partition("/;")[0]
    builder = channel(url)
    check_trusted(builder, name)
    answer = probe(url)
    if answer is Answer.SILENT and not builder.secure and speaks_tls(*_place(builder), 1):
        raise EngineError(
            f"The engine at {name} speaks TLS: say so in TIDEMARK_REMOTE, as {name}/;use_ssl=true."
        )
    if answer is Answer.SILENT:
        raise EngineError(
            f"No engine answers at {name} within {DEADLINE:.0f} seconds: start it with "
            "`tidemark up`, or set TIDEMARK_REMOTE to one that runs (with a token it must speak "
            "TLS, unless its host is called localhost).",
            passing=True,
        )
    if answer is Answer.REFUSED:
        raise EngineError(
            f"The engine at {name} refused the token: set TIDEMARK_TOKEN, or the token in "
            "TIDEMARK_REMOTE, to the one with which it was started."
        )


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


def check_trusted(builder: "Channel", name: str) -> None:
    """Refuse an engine that is asked by TLS and can't be trusted.

    Args:
        name: its address without a secret.

    Raises:
        EngineError: another authority vouches for it, its certificate is another host's, it speaks
            no TLS, or there is no file of authorities.
    """
    if not builder.use_ssl and (builder.token is None or builder.host == "localhost"):
        return
    import grpc

    own = Path(grpc.__file__).parent / "_cython" / "_credentials" / "roots.pem"
    file = Path(os.environ.get(AUTHORITIES) or own)
    try:
        reason = distrusted(*_place(builder), file, ["h2"])
    except OSError as error:
        raise EngineError(
            f"{AUTHORITIES} names '{file}', which is no file of certificates: "
            f"{(error.strerror or str(error)).lower()}."
        ) from None
    if reason == NO_TLS:
        raise EngineError(
            f"The engine at {name} speaks no TLS, which is asked of it by use_ssl=true, or by a "
            "token where its host is not called localhost: correct TIDEMARK_REMOTE, or put a proxy "
            "that speaks TLS before it."
        )
    if reason is not None:
        raise EngineError(
            f"The engine at {name} is not trusted ({reason}): set {AUTHORITIES} to the file of the "
            "certificate of who vouches for it, or correct the host in TIDEMARK_REMOTE."
        )


def channel(url: str) -> "Channel":
    """The channel of an address.

    Raises:
        EngineError: it is no Spark Connect address.
    """
    from pyspark.errors import PySparkException

    from tidemark.engine.channel import Channel

    try:
        builder = Channel(url)
        _ = builder.session_id
    except (PySparkException, ValueError) as error:
        raise EngineError(
            f"'{url.partition('/;')[0]}' is not a Spark Connect address ({error}): "
            "write it as sc://host:port/;name=value."
        ) from None
    return builder


def _place(builder: "Channel") -> tuple[str, int]:
    """Where the engine listens."""
    host, _, port = builder.endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def probe(url: str, deadline: float = DEADLINE) -> Answer:
    """Ask the engine at `url` for its version, under the session that `url` names, if any.

    Raises:
        EngineError: `url` is not a Spark Connect address.
    """
    import grpc
    from pyspark.sql.connect.proto import (
        AnalyzePlanRequest,
        ReleaseSessionRequest,
        SparkConnectServiceStub,
        UserContext,
    )

    builder = channel(url)
    session_id = builder.session_id
    if builder.host == "localhost" and not listening(_place(builder)[1]):
        # A refused connection is certain at once, where a channel would try until the deadline.
        return Answer.SILENT
    user = UserContext(user_id=builder.userId or "")
    passing = session_id or str(uuid4())
    with builder.toChannel() as open_:
        stub = SparkConnectServiceStub(open_)
        request = AnalyzePlanRequest(
            session_id=passing,
            user_context=user,
            spark_version=AnalyzePlanRequest.SparkVersion(),
        )
        metadata = builder.metadata()
        try:
            begun = time.monotonic()
            grpc.channel_ready_future(open_).result(deadline)
            left = max(0.1, deadline - (time.monotonic() - begun))
            stub.AnalyzePlan(request, timeout=left, metadata=metadata)
            if session_id is None:
                release = ReleaseSessionRequest(session_id=passing, user_context=user)
                stub.ReleaseSession(release, timeout=deadline, metadata=metadata)
        except grpc.FutureTimeoutError:
            return Answer.SILENT
        except grpc.RpcError as error:
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            status = error.code() if isinstance(error, grpc.Call) else None
            return Answer.REFUSED if status in refused else Answer.SILENT
    return Answer.READY


def check_free(port: int, setting: str) -> None:
    """Refuse a port of this machine on which another program listens.

    Args:
        setting: what says that port.

    Raises:
        EngineError: it is taken.
    """
    if listening(port):
        raise EngineError(
            f"Port {port} on 127.0.0.1 is in use by another program: stop that program, or set "
            f"{setting} (TIDEMARK_{setting.upper()}) to a free port."
        )


def listening(port: int) -> bool:
    """Whether some program listens on `port` of this machine's loopback."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _with(url: str, name: str, value: str) -> str:
    base = url if "/;" in url else f"{url.rstrip('/')}/"
    return f"{base.rstrip(';')};{name}={value}"
