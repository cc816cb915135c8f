"""Tests of a lost engine: whatever the client was doing, it learns of the loss by one error."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy

from helpers.processes.failing_engine import (
    FAULTS,
    FailingEngine,
    Fault,
    condition,
    replaced,
    serve,
)
from tidemark.base.errors import EngineLostError
from tidemark.engine.channel import Channel, open_session
from tidemark.engine.loss import has_lost_engine, is_closed, is_loss
from tidemark.engine.probe import demand_still_ready
from tidemark.engine.queries.planning import Planner, Planning

# The filter of the session's start lasts only until pytest sets its own.
pytestmark = pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")

REQUESTS: dict[str, Callable[[SparkSession], object]] = {
    "a setting": lambda spark: spark.conf.get("spark.sql.shuffle.partitions", None),
    "a setting that is changed": lambda spark: spark.conf.set("spark.sql.shuffle.partitions", "1"),
    "the version": lambda spark: spark.version,
    "columns": lambda spark: spark.range(3).schema,
    "rows": lambda spark: spark.range(3).collect(),
    "an Arrow table": lambda spark: spark.range(3).toArrow(),
    "rows one by one": lambda spark: list(spark.range(3).toLocalIterator()),
    "a command": lambda spark: spark.range(3).createOrReplaceTempView("three"),
    "SQL": lambda spark: spark.sql("SELECT 1"),
    "running queries": lambda spark: spark.streams.active,
    "rows to send": lambda spark: client_of(spark).cache_artifact(b"rows"),
    "more rows to send": lambda spark: client_of(spark).cache_artifacts([b"rows", b"more"]),
    "a file": lambda spark: spark.addArtifacts(__file__, file=True),
    "the end of the session": lambda spark: client_of(spark).release_session(),
}


SENDING = ("rows to send", "more rows to send", "a file")
"""Requests whose responses the client does not compare with its server."""


def client_of(spark: SparkSession) -> Any:  # noqa: ANN401 (not declared)
    session: Any = spark
    return session.client


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FailingEngine, int]]:
    with serve() as served:
        yield served


@pytest.fixture
def session(served: tuple[FailingEngine, int]) -> Iterator[tuple[FailingEngine, SparkSession]]:
    """Yield an engine, and a session on it."""
    engine, port = served
    engine.fault = None
    # As a library that configures logging leaves it.
    logging.getLogger("pyspark.sql.connect.logging").disabled = False
    spark = open_session(Channel(f"sc://127.0.0.1:{port}"))
    client_of(spark).set_retry_policies([DefaultPolicy(max_retries=1)])
    # The client learns the server's id of the session.
    spark.conf.set("some.setting", "1")
    yield engine, spark
    client_of(spark).close()


@pytest.mark.parametrize("request_kind", REQUESTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_engine_is_one_error_for_each_request(
    session: tuple[FailingEngine, SparkSession],
    fault: str,
    request_kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, spark = session
    engine.fault = FAULTS[fault]
    with caplog.at_level(logging.WARNING), pytest.raises(EngineLostError) as raised:
        REQUESTS[request_kind](spark)
    assert raised.value.retriable
    assert "\n" not in str(raised.value)
    assert is_closed(spark)
    assert caplog.text == ""


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_requests_after_the_loss_fail_by_the_same_error(
    session: tuple[FailingEngine, SparkSession], request_kind: str
) -> None:
    engine, spark = session
    engine.fault = FAULTS["SESSION_CHANGED"]
    for _ in range(2):
        with pytest.raises(EngineLostError):
            REQUESTS[request_kind](spark)
        engine.fault = None


@pytest.mark.parametrize("request_kind", [name for name in REQUESTS if name not in SENDING])
def test_another_engine_at_the_same_address_is_a_loss(
    session: tuple[FailingEngine, SparkSession], request_kind: str
) -> None:
    engine, spark = session
    engine.fault = replaced
    with pytest.raises(EngineLostError):
        REQUESTS[request_kind](spark)


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_a_closed_channel_is_a_loss(
    session: tuple[FailingEngine, SparkSession], request_kind: str
) -> None:
    _, spark = session
    client_of(spark)._channel.close()
    with pytest.raises(EngineLostError):
        REQUESTS[request_kind](spark)


@given(code=st.sampled_from([*grpc.StatusCode]), message=st.text())
def test_other_failures_are_no_loss(code: grpc.StatusCode, message: str) -> None:
    lost = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert is_loss(SparkConnectGrpcException(message, grpc_status_code=code)) is lost
    assert not is_loss(ValueError(message))


def test_a_failed_query_does_not_close_the_session(
    session: tuple[FailingEngine, SparkSession],
) -> None:
    engine, spark = session
    engine.fault = condition("TABLE_OR_VIEW_NOT_FOUND")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.range(3).collect()
    assert not is_closed(spark)


@pytest.mark.parametrize("fault", [*FAULTS.values(), replaced, None])
def test_a_session_finds_out_whether_its_engine_is_lost(
    session: tuple[FailingEngine, SparkSession], fault: Fault | None
) -> None:
    """Another program, such as dbt, reports the loss in words of its own."""
    engine, spark = session
    engine.fault = fault
    assert has_lost_engine(spark) is (fault is not None)


def test_an_engine_that_refuses_a_request_is_not_lost(
    session: tuple[FailingEngine, SparkSession],
) -> None:
    engine, spark = session
    engine.fault = condition("SQL_CONF_NOT_FOUND")
    assert not has_lost_engine(spark)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_is_lost_as_soon_as_it_has_answered_is_lost(
    served: tuple[FailingEngine, int], fault: str
) -> None:
    engine, port = served
    url = f"sc://127.0.0.1:{port}"
    engine.fault = None
    demand_still_ready(url)
    engine.fault = FAULTS[fault]
    with pytest.raises(EngineLostError):
        demand_still_ready(url)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ending", [KeyboardInterrupt, ValueError])
def test_the_end_of_a_context_does_not_hide_the_error_that_ended_it(
    session: tuple[FailingEngine, SparkSession], fault: str, ending: type[BaseException]
) -> None:
    engine, spark = session

    def lose() -> None:
        engine.fault = FAULTS[fault]
        raise ending

    with pytest.raises(ending), Planner(spark).planning(Planning.FEW):
        lose()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupt_of_a_request_to_a_lost_engine_stays_an_interrupt(
    session: tuple[FailingEngine, SparkSession], fault: str
) -> None:
    engine, spark = session
    engine.is_hanging = True
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)

    def lose() -> None:
        engine.fault = FAULTS[fault]
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupt = threading.Timer(0.1, lose)
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            spark.range(3).collect()
    finally:
        engine.is_hanging = False
        interrupt.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_process_exits_without_requests_to_a_lost_engine(
    session: tuple[FailingEngine, SparkSession],
) -> None:
    """With Spark's own policy, each request takes ten minutes."""
    engine, spark = session
    requests = list[str]()
    engine.fault = lambda _, context: requests.append(context.peer())
    client_of(spark)._on_exit()
    assert requests == []


def test_a_generator_of_an_interrupted_work_is_closed_silently(
    session: tuple[FailingEngine, SparkSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, spark = session
    ignored = list[BaseException | None]()
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: ignored.append(raised.exc_value))

    def work() -> Iterator[int]:
        with Planner(spark).planning(Planning.FEW):
            yield 1

    working = work()
    next(working)
    engine.fault = FAULTS["SESSION_NOT_FOUND"]
    del working
    gc.collect()
    assert ignored == []
