"""Tests of a lost engine: whatever the client was doing, it learns of the loss by one error."""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

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
from helpers.processes.freezing_proxy import FreezingProxy, serve_freezing_proxy
from tidemark.base.errors import EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine import channel, reachability
from tidemark.engine.channel import Channel, open_session
from tidemark.engine.connect import prepare_session, visit_session
from tidemark.engine.loss import has_lost_engine, is_closed, is_loss
from tidemark.engine.probe import demand_still_ready
from tidemark.engine.queries.planning import Planner, Planning
from tidemark.engine.reachability import watch_engine

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

    with pytest.raises(ending), Planner(spark).use_planning(Planning.FEW):
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
        with Planner(spark).use_planning(Planning.FEW):
            yield 1

    working = work()
    next(working)
    engine.fault = FAULTS["SESSION_NOT_FOUND"]
    del working
    gc.collect()
    assert ignored == []


@pytest.fixture
def remote(
    served: tuple[FailingEngine, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FailingEngine, FreezingProxy]]:
    """Yield an engine, and a proxy in front of it that can vanish. Its loss takes a second."""
    engine, port = served
    engine.fault = None
    monkeypatch.setattr(reachability, "INTERVAL", 0.2)
    monkeypatch.setattr(reachability, "LIMIT", 0.6)
    with serve_freezing_proxy(port) as proxy:
        yield engine, proxy
    engine.is_hanging = False


def open_through(proxy: FreezingProxy) -> SparkSession:
    spark = open_session(Channel(f"sc://127.0.0.1:{proxy.port}"))
    client_of(spark).set_retry_policies([DefaultPolicy(max_retries=1)])
    spark.conf.set("some.setting", "1")
    return spark


@pytest.mark.parametrize("request_kind", REQUESTS)
def test_an_engine_that_vanishes_without_closing_its_connections_is_lost(
    remote: tuple[FailingEngine, FreezingProxy], request_kind: str
) -> None:
    _, proxy = remote
    spark = open_through(proxy)
    watch_engine(spark, f"sc://127.0.0.1:{proxy.port}")
    proxy.freeze()
    with pytest.raises(EngineLostError):
        REQUESTS[request_kind](spark)
    assert is_closed(spark)


def test_a_query_that_runs_while_its_engine_vanishes_fails(
    remote: tuple[FailingEngine, FreezingProxy],
) -> None:
    engine, proxy = remote
    spark = open_through(proxy)
    watch_engine(spark, f"sc://127.0.0.1:{proxy.port}")
    engine.is_hanging = True
    vanishing = threading.Timer(0.5, proxy.freeze)
    vanishing.start()
    with pytest.raises(EngineLostError):
        spark.range(3).collect()
    vanishing.join()


def test_a_slow_query_of_an_engine_that_accepts_connections_goes_on(
    remote: tuple[FailingEngine, FreezingProxy],
) -> None:
    engine, proxy = remote
    spark = open_through(proxy)
    watch_engine(spark, f"sc://127.0.0.1:{proxy.port}")
    engine.is_hanging = True

    def answer() -> None:
        engine.is_hanging = False

    answering = threading.Timer(4 * reachability.LIMIT, answer)
    answering.start()
    spark.range(3).createOrReplaceTempView("three")
    answering.join()
    client_of(spark).close()


def test_only_an_engine_elsewhere_is_watched_and_only_as_long_as_its_session(
    remote: tuple[FailingEngine, FreezingProxy], session: tuple[FailingEngine, SparkSession]
) -> None:
    _, proxy = remote
    settings = Settings(remote=f"sc://127.0.0.1:{proxy.port}")

    def is_watched() -> bool:
        name = f"watch of 127.0.0.1:{proxy.port}"
        return any(thread.name == name for thread in threading.enumerate())

    _, local = session
    prepare_session(local, Settings())
    local_name = f"watch of {Settings().engine_address.removeprefix('sc://')}"
    assert all(thread.name != local_name for thread in threading.enumerate())
    with visit_session(settings, str(uuid4())):
        assert is_watched()
    deadline = time.monotonic() + 60
    while is_watched():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_query_continues_on_a_new_connection_if_the_network_forgot_the_old_one(
    remote: tuple[FailingEngine, FreezingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel pings. Spark's server permits that every five minutes, this test does it soon."""
    monkeypatch.setattr(channel, "_PING_INTERVAL_MS", 500)
    monkeypatch.setattr(channel, "_PING_LIMIT_MS", 500)
    engine, proxy = remote
    spark = open_through(proxy)
    watch_engine(spark, f"sc://127.0.0.1:{proxy.port}")
    engine.is_hanging = True
    forgetting = threading.Timer(0.3, proxy.forget_connections)
    forgetting.start()
    spark.range(3).createOrReplaceTempView("three")
    assert engine.is_hanging
    forgetting.join()
    client_of(spark).close()
