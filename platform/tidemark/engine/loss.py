"""Report the loss of the engine as one error, however Spark's client learns of it.

If an engine exits or is replaced, its clients lose their sessions and DataFrames. Spark's client
reports this in many ways, which depend on the request and on the moment: as a status of gRPC, as an
error condition, as a failed assertion, or as a usage error of its closed channel. All of them pass
through one method of the client, which `recognize_loss` replaces.
"""

import logging
import os
import warnings
from contextlib import suppress
from typing import Any, NoReturn

import grpc
from pyspark.errors import PySparkAssertionError, PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient

from tidemark.base.errors import EngineLostError

_LOST_STATUSES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""The statuses of a request whose server is not reachable, or has aborted all its requests.

Tidemark cancels no requests itself.
"""

_LOST_CONDITIONS = (
    # The server does not have the session, or it is another server.
    "INVALID_HANDLE.SESSION_",
    # The server does not have the query that it was executing for this client.
    "INVALID_HANDLE.OPERATION_",
    # The server that has sent a part of the rows does not have the others.
    "RESPONSE_ALREADY_RECEIVED",
    # The client closed its channel when it learned of the loss.
    "NO_ACTIVE_SESSION",
)
"""Prefixes of the error conditions that the client raises if its session was lost."""

_STOPPED = (
    "stopped SparkContext",
    "SparkContext was shut down",
    # gRPC's message for a request that failed outside of Spark's own handling of errors.
    "Application error processing RPC",
)
"""Parts of the messages of an engine that is shutting down."""

_CLOSED_CHANNEL = "Cannot invoke RPC"
"""The beginning of the message of gRPC for a channel that was closed."""


def recognize_loss(spark: SparkSession) -> None:
    """Let the session's client raise `EngineLostError` for each error that means that its engine is
    lost. The client is closed then, so that nothing uses the session again."""
    # The client warns before it raises the same error.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
        # The client's log of such errors is off by default. Libraries that configure logging, such
        # as Dagster and uvicorn, turn it on.
        logging.getLogger("pyspark.sql.connect.logging").disabled = True
    session: Any = spark
    # Spark's session creates its client itself, and accepts no other class.
    session.client.__class__ = _Client


def is_closed(spark: SparkSession) -> bool:
    """Return whether the session's client is closed: it was stopped, or its engine was lost."""
    session: Any = spark
    return session.client.is_closed


def has_lost_engine(spark: SparkSession) -> bool:
    """Return whether the session's engine is lost. A small request to the engine finds out."""
    try:
        raise_if_lost(spark)
    except EngineLostError:
        return True
    return False


def raise_if_lost(spark: SparkSession) -> None:
    """Raise `EngineLostError` if the session's engine is lost.

    This is for work that uses the engine through another program: its own client may have learned
    of the loss in any way, and may have reported it in any words.
    """
    # With another error, the engine has answered.
    with suppress(PySparkException):
        spark.conf.get("spark.app.name", None)


def is_loss(error: Exception) -> bool:
    """Return whether an error of Spark's client means that the engine exited or was replaced."""
    if isinstance(error, PySparkAssertionError):
        # The client asserts only that a response is from its own session and server.
        return True
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        if condition.startswith(_LOST_CONDITIONS):
            return True
    elif not isinstance(error, grpc.RpcError):
        return isinstance(error, ValueError) and str(error).startswith(_CLOSED_CHANNEL)
    elif any(f"[{condition}" in str(error) for condition in _LOST_CONDITIONS):
        # Without Spark's client, the condition is only in the message.
        return True
    return _status_code(error) in _LOST_STATUSES or describes_loss(str(error))


def describes_loss(message: str) -> bool:
    """Return whether the message of a failed query says that its engine was shutting down."""
    return any(part in message for part in _STOPPED)


def _status_code(error: Exception) -> grpc.StatusCode | None:
    if isinstance(error, SparkConnectGrpcException):
        return error.getGrpcStatusCode()
    if isinstance(error, grpc.Call):
        return error.code()
    return None


class _Client(SparkConnectClient):
    """Spark's client, which reports the loss of the engine as `EngineLostError`."""

    def _handle_error(self, error: Exception) -> NoReturn:
        try:
            super()._handle_error(error)
        except EngineLostError:
            raise
        except Exception as raised:
            self._raise_if_lost(raised)
            raise

    def interrupt_operation(self, op_id: str) -> list[str] | None:
        # Spark calls this when Ctrl-C ends a request. A lost engine does not execute the request
        # any more, and its loss must not hide the interrupt.
        with suppress(EngineLostError):
            return super().interrupt_operation(op_id)
        return None

    def _cleanup_ml_cache(self) -> None:
        """Do nothing. Spark calls this when the process exits, and would try for ten minutes to
        reach a lost engine. Tidemark has no models of Spark's machine learning."""

    # Spark's methods for artifacts do not check that the client is open, and two of them do not
    # pass their errors to `_handle_error`.

    def add_artifacts(self, *paths: str, pyfile: bool, archive: bool, file: bool) -> None:
        self._check_open()
        super().add_artifacts(*paths, pyfile=pyfile, archive=archive, file=file)

    def cache_artifact(self, blob: bytes) -> str:
        self._check_open()
        try:
            return super().cache_artifact(blob)
        except Exception as error:
            self._handle_error(error)

    def cache_artifacts(self, blobs: list[bytes]) -> list[str]:
        self._check_open()
        try:
            return super().cache_artifacts(blobs)
        except Exception as error:
            self._handle_error(error)

    def _check_open(self) -> None:
        if self.is_closed:
            raise EngineLostError

    def _raise_if_lost(self, error: Exception) -> None:
        if not is_loss(error):
            return
        # A later request then fails at once, and a new default session can take this one's place.
        self._closed = True
        raise EngineLostError from error
