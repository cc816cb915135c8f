"""Connect to an engine with the token in the metadata of each call.

Spark's client passes the token to gRPC as call credentials. gRPC then starts a thread for each
call. Starting a thread takes 0.2 ms, and from Python 3.12 on raises an error while a process exits.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import RetryPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tidemark.engine.loss import recognize_loss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PING_INTERVAL_MS = 310_000
"""Milliseconds of silence after which a channel with a waiting request sends a ping. Servers permit
one in five minutes. A network that forgets silent connections often does so after 350 seconds."""

_PING_LIMIT_MS = 40_000
"""Milliseconds after which a ping without an answer ends the connection. The client then continues
the request on a new one."""


class Channel(DefaultChannelBuilder):
    """A channel to an engine. As in Spark, a token is sent without TLS only to `localhost`.

    Args:
        read_token: a function that returns the token, if it may change. It is called for each
            request; otherwise the token is that of the address.
    """

    def __init__(self, url: str, read_token: Callable[[], str] | None = None) -> None:
        super().__init__(url)
        self._read_token = read_token
        self.setChannelOption("grpc.keepalive_time_ms", _PING_INTERVAL_MS)
        self.setChannelOption("grpc.http2.ping_timeout_ms", _PING_LIMIT_MS)

    def metadata(self) -> list[tuple[str, str]]:
        if self._read_token is None:
            return self._current_metadata()
        # The client keeps the list for the requests that belong to one query.
        return cast("list[tuple[str, str]]", _Metadata(self._current_metadata))

    def _current_metadata(self) -> list[tuple[str, str]]:
        token = self.token if self._read_token is None else self._read_token()
        metadata = list(super().metadata())
        if token is not None:
            metadata.append(("authorization", f"Bearer {token}"))
        return metadata

    def toChannel(self) -> grpc.Channel:  # noqa: N802 (the name that it has)
        """Open the gRPC channel. Callers must pass `metadata()` to every call on the channel."""
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        is_local = not self.use_ssl and self.host == "localhost"
        credentials = (
            grpc.local_channel_credentials() if is_local else grpc.ssl_channel_credentials()
        )
        return self._secure_channel(self.endpoint, credentials)


class _Metadata:
    """The metadata of a request, which gRPC reads when it sends the request."""

    def __init__(self, read: Callable[[], list[tuple[str, str]]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._read())


class RenewedToken(RetryPolicy):
    """Repeat a request once that the engine has refused, with a new token.

    Args:
        renew: a function that lets the token be read again.
    """

    def __init__(self, renew: Callable[[], object]) -> None:
        super().__init__(max_retries=1, initial_backoff=0)
        self._renew = renew

    def can_retry(self, exception: BaseException) -> bool:
        is_refused = (
            isinstance(exception, grpc.Call) and exception.code() is grpc.StatusCode.UNAUTHENTICATED
        )
        if is_refused:
            self._renew()
        return is_refused


def open_session(channel: Channel) -> "SparkSession":
    # With this variable, PySpark's functions use the Connect client. PySpark's own builder sets the
    # variable too, but accepts only an address instead of a channel.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = ConnectSession.builder.channelBuilder(channel).create()
    # The client keeps its first session as the default session, even after that session was closed.
    # A UDF whose return type is a string needs an open default session.
    if ConnectSession._get_default_session() is None:
        ConnectSession._default_session = session
    spark = cast("SparkSession", session)
    recognize_loss(spark)
    return spark
