"""Check whether an engine answers within a deadline, and determine the reason if it does not.

If an address does not answer, Spark's client retries for ten minutes before it raises an error. The
client also treats a wrong token like a server that is not ready yet. Therefore, this check comes
before the client connects.
"""

import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tidemark.base.errors import EngineError, EngineLostError
from tidemark.base.tls import NO_TLS, find_trust_problem, uses_tls
from tidemark.engine.ports import is_listening

if TYPE_CHECKING:
    from tidemark.engine.channel import Channel

DEADLINE = 8.0
"""Seconds within which an engine must answer."""

_OWN_REMEDY = "start it with `tidemark up`."
_REMOTE_REMEDY = (
    "start that engine, or correct TIDEMARK_REMOTE. An address with a token requires TLS, unless "
    "its host is localhost."
)

AUTHORITIES = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""The environment variable from which gRPC takes its trusted certificates."""


class Answer(Enum):
    """How an engine has answered the question whether it is ready.

    - `READY`: the engine answered.
    - `REFUSED`: the engine refused the token.
    - `SILENT`: no engine answered within the deadline.
    """

    READY = "ready"
    REFUSED = "refused"
    SILENT = "silent"


class RefusedTokenError(EngineError):
    """The engine has refused the token."""


def demand_ready(url: str, *, is_remote: bool = False) -> None:
    """Raise an error if the engine at `url` can't be used. The message names reason and remedy.

    Args:
        is_remote: true if the engine is one that Tidemark does not start.

    Raises:
        RefusedTokenError: the engine has refused the token.
        EngineError: the engine can't be used for another reason.
    """
    name = url.partition("/;")[0]
    builder = create_channel(url)
    _check_trusted(builder, name)
    # The message reports `DEADLINE`; one second of it is for the TLS check.
    answer = probe_engine(url, DEADLINE - 1)
    host, port = host_and_port(builder)
    if answer is Answer.SILENT and not builder.secure and uses_tls(host, port, 1):
        raise EngineError(
            f"The engine at {name} requires TLS: set TIDEMARK_REMOTE to {name}/;use_ssl=true."
        )
    if answer is Answer.SILENT:
        raise EngineError(
            f"No engine answers at {name} within {DEADLINE:.0f} seconds: "
            f"{_REMOTE_REMEDY if is_remote else _OWN_REMEDY}",
            retriable=True,
        )
    if answer is Answer.REFUSED:
        raise RefusedTokenError(
            f"The engine at {name} refused the token: set TIDEMARK_TOKEN, or the token in "
            "TIDEMARK_REMOTE, to the token with which the engine was started."
        )


def demand_still_ready(url: str) -> None:
    """Raise an error as `demand_ready` does, for an engine that answered a moment ago.

    Raises:
        EngineLostError: the engine does not answer any more.
    """
    try:
        demand_ready(url)
    except EngineError as error:
        if error.retriable:
            raise EngineLostError from error
        raise


def _check_trusted(builder: "Channel", name: str) -> None:
    """Raise an error if TLS is required, and the engine has no TLS or no trusted certificate.

    TLS is required by `use_ssl=true`, and by a token if the host is not `localhost`.

    Args:
        name: the engine's address without a secret, for messages.
    """
    if not builder.use_ssl and (builder.token is None or builder.host == "localhost"):
        return
    import grpc

    bundled = Path(grpc.__file__).parent / "_cython" / "_credentials" / "roots.pem"
    file = Path(os.environ.get(AUTHORITIES) or bundled)
    host, port = host_and_port(builder)
    try:
        reason = find_trust_problem(host, port, file, ["h2"])
    except OSError as error:
        raise EngineError(
            f"{AUTHORITIES} names '{file}', which is not a file of certificates: "
            f"{(error.strerror or str(error)).lower()}."
        ) from None
    if reason == NO_TLS:
        raise EngineError(
            f"The engine at {name} does not use TLS. TLS is required by use_ssl=true, and by a "
            "token if the host is not localhost: correct TIDEMARK_REMOTE, or put a proxy that uses "
            "TLS in front of the engine."
        )
    if reason is not None:
        raise EngineError(
            f"The engine at {name} is not trusted ({reason}): set {AUTHORITIES} to a file with "
            "the certificate of its authority, or correct the host in TIDEMARK_REMOTE."
        )


def create_channel(url: str, read_token: Callable[[], str] | None = None) -> "Channel":
    """Return a channel to the engine at an address, with the token of the address by default."""
    from pyspark.errors import PySparkException

    from tidemark.engine.channel import Channel

    try:
        builder = Channel(url, read_token)
        _ = builder.session_id
    except (PySparkException, ValueError) as error:
        raise EngineError(
            f"'{url.partition('/;')[0]}' is not a Spark Connect address ({error}): "
            "write it as sc://host:port/;name=value, and other characters than letters, digits, "
            "'-', '_' and '.' in a value as in an address, such as %3D for '='."
        ) from None
    return builder


def host_and_port(builder: "Channel") -> tuple[str, int]:
    host, _, port = builder.endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def probe_engine(url: str, deadline: float = DEADLINE) -> Answer:
    """Request the version of the engine at `url`, and return how the engine answers.

    The request uses the session that `url` names. If it names none, the request uses a session of
    its own, which is then released.
    """
    import grpc
    from pyspark.sql.connect.proto import (
        AnalyzePlanRequest,
        ReleaseSessionRequest,
        SparkConnectServiceStub,
        UserContext,
    )

    builder = create_channel(url)
    session_id = builder.session_id
    if builder.host == "localhost" and not is_listening(host_and_port(builder)[1]):
        # A refused connection is an immediate answer; a channel would retry until the deadline.
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
            remaining = max(0.1, deadline - (time.monotonic() - begun))
            stub.AnalyzePlan(request, timeout=remaining, metadata=metadata)
            if session_id is None:
                release = ReleaseSessionRequest(session_id=passing, user_context=user)
                stub.ReleaseSession(release, timeout=deadline, metadata=metadata)
        except grpc.FutureTimeoutError:
            return Answer.SILENT
        except grpc.RpcError as error:
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            status = error.code() if isinstance(error, grpc.Call) else None
            if status in refused:
                return Answer.REFUSED
            return Answer.SILENT
    return Answer.READY
