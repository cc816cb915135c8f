"""Outages: which errors are retried, how long the waits are, and what is reported."""

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from tidemark.base.errors import DataError, EngineError
from tidemark_streaming.base.outage import LONGEST_WAIT, Outage

BROKERS = DataError("Kafka can't be read.", retriable=True)
UNAVAILABLE = SparkConnectGrpcException(
    "Socket closed", grpc_status_code=grpc.StatusCode.UNAVAILABLE
)
ANOTHER = SparkConnectGrpcException(
    "No such session.", errorClass="INVALID_HANDLE.SESSION_NOT_FOUND", messageParameters={}
)


def test_an_outage_is_reported_once_and_waits_grow_to_a_limit() -> None:
    said: list[str] = []
    slept: list[float] = []
    outage = Outage(said.append, slept.append)
    outage.end()
    for _ in range(9):
        outage.wait(BROKERS)
    assert slept == [0.5, 1, 2, 4, 8, 16, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert said == ["Kafka can't be read. Waiting until it is back."]
    outage.wait(DataError("It refuses the user.", retriable=True))
    outage.wait(BROKERS)
    assert said.pop() == "It refuses the user. Waiting until it is back."
    outage.end()
    outage.end()
    assert said[1:] == ["The outage ended after 0 seconds: continuing."]
    outage.wait(EngineError("No engine answers.", retriable=True))
    assert slept[-1] == 0.5
    assert said[2:] == ["No engine answers. Waiting until it is back."]


@pytest.mark.parametrize("error", [UNAVAILABLE, ANOTHER])
def test_an_unreachable_engine_is_retried(error: Exception) -> None:
    said: list[str] = []
    Outage(said.append, lambda _: None).wait(error)
    assert said == ["The engine has exited. Waiting until it is back."]


@pytest.mark.parametrize(
    "error",
    [
        DataError("A topic was made anew."),
        EngineError("The token was refused."),
        SparkConnectGrpcException("A column is missing."),
    ],
)
def test_errors_that_need_a_person_are_not_retried(error: Exception) -> None:
    slept: list[float] = []
    with pytest.raises(type(error), match=str(error)):
        Outage(sleep=slept.append).wait(error)
    assert slept == []
