"""The channel to an engine, with the token among what each call tells.

Spark's client gives the token to gRPC as credentials of calls, for which that starts a thread at
each call: a fifth of a millisecond, and from Python 3.12 on an error where a process ends.
"""

import os
from typing import TYPE_CHECKING, cast

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Channel(DefaultChannelBuilder):
    """A channel by its address, as Spark's own: without TLS a token goes to `localhost` alone."""

    def metadata(self) -> list[tuple[str, str]]:
        """What each call tells."""
        token = [] if self.token is None else [("authorization", f"Bearer {self.token}")]
        return [*super().metadata(), *token]

    def toChannel(self) -> grpc.Channel:  # noqa: N802 (the name that it has)
        """Connect; whatever is called must be given `metadata`."""
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        here = not self.use_ssl and self.host == "localhost"
        known = grpc.local_channel_credentials() if here else grpc.ssl_channel_credentials()
        return self._secure_channel(self.endpoint, known)


def connected(channel: Channel) -> "SparkSession":
    """A new session by a channel."""
    # As by PySpark's own builder, which takes addresses alone: functions are the client's now.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = ConnectSession.builder.channelBuilder(channel).create()
    # The client keeps its first session as the default, also once that is closed, and a UDF whose
    # type is a text can't be made without an open one.
    if ConnectSession._get_default_session() is None:
        ConnectSession._default_session = session
    return cast("SparkSession", session)
