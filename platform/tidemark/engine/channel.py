"""Connect to an engine with the token in the metadata of each call.

Spark's client passes the token to gRPC as call credentials. gRPC then starts a thread for each
call. That takes 0.2 ms, and from Python 3.12 on it raises an error while a process exits.
"""

import os
from typing import TYPE_CHECKING, cast

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Channel(DefaultChannelBuilder):
    """A channel to an address; as in Spark, a token without TLS is sent only to `localhost`."""

    def metadata(self) -> list[tuple[str, str]]:
        token = [] if self.token is None else [("authorization", f"Bearer {self.token}")]
        return [*super().metadata(), *token]

    def toChannel(self) -> grpc.Channel:  # noqa: N802 (the name that it has)
        """Connect. Every call on the channel must be given `metadata`."""
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        here = not self.use_ssl and self.host == "localhost"
        known = grpc.local_channel_credentials() if here else grpc.ssl_channel_credentials()
        return self._secure_channel(self.endpoint, known)


def open_session(channel: Channel) -> "SparkSession":
    # PySpark's builder, which accepts only addresses, sets this too: functions then use the Connect
    # client.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = ConnectSession.builder.channelBuilder(channel).create()
    # The client keeps its first session as the default, even after it was closed. A UDF with its
    # type as a string needs an open one.
    if ConnectSession._get_default_session() is None:
        ConnectSession._default_session = session
    return cast("SparkSession", session)
