"""Connect to an engine with the token in the metadata of each call.

Spark's client passes the token to gRPC as call credentials. gRPC then starts a thread for each
call. Starting a thread takes 0.2 ms, and from Python 3.12 on raises an error while a process exits.
"""

import os
from typing import TYPE_CHECKING, cast

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tidemark.engine.loss import recognize_loss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Channel(DefaultChannelBuilder):
    """A channel to an engine. As in Spark, a token is sent without TLS only to `localhost`."""

    def metadata(self) -> list[tuple[str, str]]:
        token = [] if self.token is None else [("authorization", f"Bearer {self.token}")]
        return [*super().metadata(), *token]

    def toChannel(self) -> grpc.Channel:  # noqa: N802 (the name that it has)
        """Open the gRPC channel. Callers must pass `metadata()` to every call on the channel."""
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        here = not self.use_ssl and self.host == "localhost"
        known = grpc.local_channel_credentials() if here else grpc.ssl_channel_credentials()
        return self._secure_channel(self.endpoint, known)


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
