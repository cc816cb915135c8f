"""Notice that an engine elsewhere vanished without closing its connections.

A machine that loses its power or its network closes no connection, and a request that waits for its
engine would wait for hours. Spark's server permits gRPC's own pings only every five minutes.
Therefore, a thread tries to open a new connection from time to time.
"""

import time
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import ref

import grpc

from tidemark.engine.channel import Channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = 10.0
"""Seconds between two attempts to connect, and until an attempt has failed."""

LIMIT = 40.0
"""Seconds without a new connection after which the engine is lost. They are more than a pause of
the engine's memory management, and leave less than a minute until a request fails."""


def watch_engine(spark: "SparkSession", url: str) -> None:
    """Close the session's channel once no connection to its engine can be opened any more.

    The requests that wait then raise `EngineLostError`. The thread ends with the session.
    """
    builder = Channel(url)
    # Otherwise, gRPC would use the connection of the session.
    builder.setChannelOption("grpc.use_local_subchannel_pool", 1)
    session: Any = spark
    # The thread must not keep the session in memory.
    client = ref(session.client)
    name = f"watch of {builder.endpoint}"
    Thread(target=_watch, args=(client, builder), name=name, daemon=True).start()


def _watch(client: "ref[Any]", builder: Channel) -> None:
    last_connection = time.monotonic()
    while True:
        time.sleep(INTERVAL)
        if _is_ended(client):
            return
        if _can_connect(builder):
            last_connection = time.monotonic()
        elif time.monotonic() - last_connection > LIMIT:
            break
    watched = client()
    if watched is not None:
        watched._channel.close()


def _is_ended(client: "ref[Any]") -> bool:
    watched = client()
    return watched is None or watched.is_closed


def _can_connect(builder: Channel) -> bool:
    """Return whether the engine accepts a new connection.

    The engine's part of gRPC must answer. That the system accepts the connection is not enough.
    """
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(INTERVAL)
        except grpc.FutureTimeoutError:
            return False
    return True
