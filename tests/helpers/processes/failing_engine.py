"""A server of Spark's protocol that computes nothing and fails on request.

It fails in the ways in which an engine that dies or is replaced fails, at the same moment each
time.
"""

# The names and generated classes of Spark's protocol:
# ruff: noqa: ANN401, N802

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from pyspark.sql.connect import proto
from pyspark.sql.connect.proto.base_pb2_grpc import (
    SparkConnectServiceServicer,
    add_SparkConnectServiceServicer_to_server,
)

Fault = Callable[["FailingEngine", grpc.ServicerContext], None]
"""The way in which an engine fails a request."""


@dataclass
class FailingEngine(SparkConnectServiceServicer):
    """A server of Spark's protocol, which answers requests without content until it fails."""

    fault: Fault | None = None
    id: str = field(default_factory=lambda: str(uuid4()))
    """The server's own id of the session."""
    is_hanging: bool = False
    """Whether the engine does not answer queries."""
    queries: int = 0
    """The number of queries so far."""

    def _fail(self, context: grpc.ServicerContext) -> None:
        if self.fault is not None:
            self.fault(self, context)

    def Config(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        defaults = request.operation.get_with_default.pairs
        keys = [pair.key for pair in defaults] or request.operation.get_option.keys
        return proto.ConfigResponse(
            session_id=request.session_id,
            server_side_session_id=self.id,
            pairs=[*(defaults or (proto.KeyValue(key=key) for key in keys))],
        )

    def AnalyzePlan(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        version = proto.AnalyzePlanResponse.SparkVersion(version="4.2.0")
        return proto.AnalyzePlanResponse(
            session_id=request.session_id, server_side_session_id=self.id, spark_version=version
        )

    def ExecutePlan(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.queries += 1
        while self.is_hanging and context.is_active():
            time.sleep(0.01)
        yield self._response(request)
        self._fail(context)
        yield self._response(request, result_complete={})

    def ReattachExecute(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        yield self._response(request, result_complete={})

    def ReleaseExecute(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        return proto.ReleaseExecuteResponse(session_id=request.session_id)

    def ReleaseSession(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        return proto.ReleaseSessionResponse(
            session_id=request.session_id, server_side_session_id=self.id
        )

    def ArtifactStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        return proto.ArtifactStatusesResponse(session_id=request.session_id)

    def AddArtifacts(self, request_iterator: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        return proto.AddArtifactsResponse(session_id=next(request_iterator).session_id)

    def Interrupt(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._fail(context)
        return proto.InterruptResponse(session_id=request.session_id)

    def _response(self, request: Any, **content: Any) -> Any:
        return proto.ExecutePlanResponse(
            **content,
            session_id=request.session_id,
            server_side_session_id=self.id,
            operation_id=request.operation_id,
            response_id=str(uuid4()),
        )


def status(name: str, message: str = "Socket closed") -> Fault:
    """Return a fault that ends requests with a status of gRPC."""

    def fail(_: FailingEngine, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode[name], message)

    return fail


def condition(name: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> Fault:
    """Return a fault that ends requests with an error condition of Spark."""

    def fail(_: FailingEngine, context: grpc.ServicerContext) -> None:
        info = error_details_pb2.ErrorInfo(reason="org.apache.spark.SparkException")
        info.metadata["errorClass"] = name
        info.metadata["messageParameters"] = "{}"
        details = any_pb2.Any()
        details.Pack(info)
        found = status_pb2.Status(code=code.value[0], message=f"[{name}] No.", details=[details])
        context.abort_with_status(rpc_status.to_status(found))

    return fail


def replaced(engine: FailingEngine, _: grpc.ServicerContext) -> None:
    """Answer as another engine, which has the same address."""
    engine.id = str(uuid4())


FAULTS: dict[str, Fault] = {
    "UNAVAILABLE": status("UNAVAILABLE"),
    "CANCELLED": status("CANCELLED"),
    "UNKNOWN": status("UNKNOWN", "Application error processing RPC"),
    "SESSION_NOT_FOUND": condition("INVALID_HANDLE.SESSION_NOT_FOUND"),
    "SESSION_CHANGED": condition("INVALID_HANDLE.SESSION_CHANGED"),
    "SESSION_CLOSED": condition("INVALID_HANDLE.SESSION_CLOSED"),
    "OPERATION_NOT_FOUND": condition("INVALID_HANDLE.OPERATION_NOT_FOUND"),
    "OPERATION_ABANDONED": condition("INVALID_HANDLE.OPERATION_ABANDONED"),
}


@contextmanager
def serve() -> Iterator[tuple[FailingEngine, int]]:
    """Yield an engine and its port."""
    engine = FailingEngine()
    server = grpc.server(ThreadPoolExecutor(4))
    add_SparkConnectServiceServicer_to_server(engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield engine, port
    finally:
        server.stop(0)
