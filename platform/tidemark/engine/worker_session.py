"""The session that the function of a stream uses, in the Python of the server.

Spark opens a session for the function: the one of the stream, which lasts longer than a version of
the code. If the stream has brought its code along, the function therefore uses another session.
"""

import os
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidemark.base.sent_code import SentCode, code_of_process
from tidemark.engine.connect import add_parameter, limit_retries
from tidemark.engine.loss import has_lost_engine, recognize_loss
from tidemark.engine.probe import create_channel
from tidemark.engine.project_code import upload_code
from tidemark.engine.queries.rules import exclude_unsafe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADDRESS = "SPARK_CONNECT_LOCAL_URL"
"""The variable in which Spark passes the address of the server, with user and token."""


class _Process:
    session: "SparkSession | None" = None
    lock = Lock()


def session_of(batch: "DataFrame") -> "SparkSession":
    """Return the session in which the function of a stream runs, for a micro-batch."""
    code = code_of_process()
    if code is None:
        spark = batch.sparkSession
        recognize_loss(spark)
        # The worker runs next to the engine, and ends with it.
        limit_retries(spark)
        return spark
    with _Process.lock:
        # The engine ends a session that is idle for long, although the stream is running.
        if _Process.session is None or has_lost_engine(_Process.session):
            _Process.session = _open_session(code)
        return _Process.session


def _open_session(code: SentCode) -> "SparkSession":
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from tidemark.engine.channel import open_session

    url = add_parameter(os.environ[_ADDRESS], "session_id", str(uuid4()))
    spark = open_session(create_channel(url))
    connect: Any = ConnectSession
    # Functions of a definition that use the active session must not get that of the stream.
    connect._set_default_and_active_session(spark)
    limit_retries(spark)
    exclude_unsafe(spark)
    upload_code(spark, code)
    return spark
