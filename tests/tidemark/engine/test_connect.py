"""Tests of opening sessions: an engine must answer and accept the token, within seconds."""

import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.client import retries

from helpers.processes.failing_engine import FAULTS, FailingEngine, serve
from tidemark import engine as spark_engine
from tidemark.base.errors import DefinitionError, EngineError, EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine.channel import open_session
from tidemark.engine.connect import engine_address, prepare_session
from tidemark.engine.ports import free_port
from tidemark.engine.probe import DEADLINE, Answer, create_channel, probe_engine
from tidemark.engine.queries.rules import EXCLUDED_RULES, UNSAFE_RULE
from tidemark.engine.token import token_of


def within(seconds: float, call: Callable[[], object]) -> str:
    begun = time.monotonic()
    with pytest.raises(EngineError) as raised:
        call()
    assert time.monotonic() - begun < seconds
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[Settings]:
    """Yield settings with the address of a listener that never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Settings(home=tmp_path, remote=f"sc://localhost:{listener.getsockname()[1]}")


def test_a_session_runs_a_query(engine: Settings) -> None:
    session = spark_engine.connect_session(engine)
    assert session.range(5).count() == 5
    session.stop()


def test_a_session_is_reopened_by_its_id(engine: Settings) -> None:
    name = str(uuid4())
    first: Any = spark_engine.connect_session(engine, session_id=name)
    first.sql("SET tidemark.test = here")
    # Stop it: Spark's functions would otherwise use it, also in later tests.
    first.release_session_on_close = False
    first.stop()
    again = spark_engine.connect_session(engine, session_id=name)
    assert again.conf.get("tidemark.test") == "here"
    again.stop()


def test_sessions_without_an_id_are_isolated(engine: Settings) -> None:
    one, other = spark_engine.connect_session(engine), spark_engine.connect_session(engine)
    one.conf.set("tidemark.test", "one")
    assert other.conf.get("tidemark.test", "unset") == "unset"
    one.stop()
    other.stop()


def test_a_process_releases_its_session_silently_when_it_exits(engine: Settings) -> None:
    opens = (
        "from tidemark import engine\n"
        "from tidemark.base.settings import Settings\n"
        f"session = engine.connect_session(Settings(home={str(engine.home)!r}, "
        f"engine_port={engine.engine_port}))\n"
        "print(session.session_id, session.range(5).count(), end='')\n"
    )
    done = subprocess.run([sys.executable, "-c", opens], capture_output=True, text=True)
    name, count = done.stdout.split()
    assert (done.returncode, done.stderr, count) == (0, "", "5")
    again = SparkSession.builder.remote(f"{engine_address(engine)};session_id={name}").create()
    with pytest.raises(PySparkException, match=r"SESSION_CLOSED"):
        again.range(1).count()
    again.client.close()


def test_a_remote_address_serves_as_the_engine(engine: Settings, tmp_path: Path) -> None:
    elsewhere = Settings(home=tmp_path, remote=engine_address(engine))
    assert spark_engine.ensure_engine(elsewhere) == engine_address(engine)
    session = spark_engine.connect_session(elsewhere)
    assert session.range(3).count() == 3
    session.stop()


def test_the_token_may_be_a_separate_setting(engine: Settings, tmp_path: Path) -> None:
    bare = f"sc://localhost:{engine.engine_port}"
    elsewhere = Settings(home=tmp_path, remote=bare, token=token_of(engine))
    assert probe_engine(engine_address(elsewhere)) is Answer.READY


def test_embedded_engine_sessions_exclude_the_rule_that_loses_rows(
    engine: Settings,
) -> None:
    """This includes the sessions of other clients, such as dbt."""
    bare = SparkSession.builder.remote(engine_address(engine)).create()
    assert bare.conf.get(EXCLUDED_RULES) == UNSAFE_RULE
    bare.stop()
    session = spark_engine.connect_session(engine)
    assert session.conf.get(EXCLUDED_RULES) == UNSAFE_RULE
    session.stop()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", UNSAFE_RULE),
        ("some.Rule, another.Rule", f"some.Rule,another.Rule,{UNSAFE_RULE}"),
        (f"some.Rule,{UNSAFE_RULE}", f"some.Rule,{UNSAFE_RULE}"),
    ],
)
def test_the_rule_is_added_to_the_engines_excluded_rules(
    engine: Settings, tmp_path: Path, rules: str, expected: str
) -> None:
    elsewhere, name = Settings(home=tmp_path, remote=engine_address(engine)), str(uuid4())
    session = spark_engine.connect_session(elsewhere, session_id=name)
    # A reopened session represents one of an engine that was started with such rules.
    session.conf.set(EXCLUDED_RULES, rules)
    with spark_engine.visit_session(elsewhere, name) as again:
        assert again.conf.get(EXCLUDED_RULES) == expected
    session.stop()


def test_foreachbatch_functions_run_without_the_rule_that_loses_rows(
    engine: Settings, tmp_path: Path
) -> None:
    told = tmp_path / "told"

    def tell(batch: DataFrame, _: int) -> None:
        told.write_text(str(batch.sparkSession.conf.get(EXCLUDED_RULES)))

    session = spark_engine.connect_session(Settings(home=tmp_path, remote=engine_address(engine)))
    stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.writeStream.foreachBatch(tell).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert UNSAFE_RULE in told.read_text()
    session.stop()


def test_a_missing_engine_is_reported_quickly(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(home=tmp_path, remote=f"sc://localhost:{port}")
    sentence = within(20, lambda: spark_engine.connect_session(settings))
    assert sentence.startswith(f"No engine answers at sc://localhost:{port} within 8 seconds:")
    assert within(20, lambda: spark_engine.ensure_engine(settings)) == sentence
    # Tidemark can't start it.
    assert "tidemark up" not in sentence


# Waits for the whole deadline.
@pytest.mark.slow
def test_a_listener_that_is_not_an_engine_is_reported_quickly(mute: Settings) -> None:
    assert within(20, lambda: spark_engine.connect_session(mute)).startswith(
        "No engine answers at "
    )


def test_the_connection_deadline_is_the_one_in_the_message(
    mute: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline includes the probe for TLS."""
    given = list[float]()

    def silent(_: str, deadline: float = DEADLINE) -> Answer:
        given.append(deadline)
        return Answer.SILENT

    def no_tls(_host: str, _port: int, deadline: float) -> bool:
        given.append(deadline)
        return False

    monkeypatch.setattr("tidemark.engine.probe.probe_engine", silent)
    monkeypatch.setattr("tidemark.engine.probe.uses_tls", no_tls)
    assert f"within {DEADLINE:.0f} seconds" in within(
        20, lambda: spark_engine.connect_session(mute)
    )
    assert sum(given) == DEADLINE


def test_an_embedded_engine_that_is_not_running_is_reported(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, engine_port=free_port())
    assert "start it with `tidemark up`" in within(
        20, lambda: spark_engine.connect_session(settings)
    )


@pytest.mark.parametrize("token", ["wrong", None])
def test_a_wrong_or_missing_token_is_reported_quickly(
    engine: Settings, tmp_path: Path, token: str | None
) -> None:
    bare = f"sc://localhost:{engine.engine_port}"
    settings = Settings(home=tmp_path, remote=bare, token=token)
    sentence = within(20, lambda: spark_engine.connect_session(settings))
    assert sentence.startswith(f"The engine at {bare} refused the token: set TIDEMARK_TOKEN")


def test_error_messages_hide_the_token(engine: Settings, tmp_path: Path) -> None:
    url = f"sc://localhost:{engine.engine_port}/;token=secret"
    settings = Settings(home=tmp_path, remote=url)
    assert "secret" not in within(20, lambda: spark_engine.connect_session(settings))


def test_an_invalid_address_is_refused(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, remote="sc://host:port/;x")
    assert "is not a Spark Connect address" in within(
        20, lambda: spark_engine.connect_session(settings)
    )


@pytest.mark.parametrize("remote", ["local[4]", "spark://host:7077", "https://host:443", "host:1"])
def test_an_address_that_is_not_one_of_spark_connect_is_refused(
    tmp_path: Path, remote: str
) -> None:
    with pytest.raises(DefinitionError, match=r"sc://host:15002 .* spark://host:7077"):
        Settings(home=tmp_path, remote=remote)


@pytest.mark.parametrize("token", ["ab+/c==", "ab%2B%2Fc%3D%3D"])
def test_a_token_in_an_address_may_have_any_characters(tmp_path: Path, token: str) -> None:
    settings = Settings(home=tmp_path, remote=f"sc://localhost:1/;token={token};use_ssl=true")
    builder = create_channel(engine_address(settings))
    assert builder.metadata() == [("authorization", "Bearer ab+/c==")]
    assert builder.use_ssl


def test_a_token_may_have_the_characters_of_http(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, remote="sc://localhost:1", token="ab+/c==")
    assert create_channel(engine_address(settings)).token == "ab+/c=="
    with pytest.raises(DefinitionError, match="must be letters, digits"):
        Settings(home=tmp_path, token="ab+/c==")


def test_a_command_prints_the_token_and_a_wrong_one_is_read_again(
    engine: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "printed"
    remote = f"sc://localhost:{engine.engine_port}"
    settings = Settings(home=tmp_path, remote=remote, token=f"command:cat {file}")
    file.write_text("wrong\n")
    assert "refused the token" in within(20, lambda: spark_engine.ensure_engine(settings))
    file.write_text(f"{token_of(engine)}\n")
    session = spark_engine.connect_session(settings)
    assert session.range(3).count() == 3
    session.stop()


def test_a_request_is_repeated_with_a_new_token_if_the_engine_refuses_it(tmp_path: Path) -> None:
    file, valid = tmp_path / "printed", "first"

    def refuse(_: FailingEngine, context: grpc.ServicerContext) -> None:
        sent = dict(context.invocation_metadata())
        if sent["authorization"] != f"Bearer {valid}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "expired")

    file.write_text(valid)
    with serve() as (failing, port):
        failing.fault = refuse
        remote = f"sc://localhost:{port}"
        settings = Settings(home=tmp_path, remote=remote, token=f"command:cat {file}")
        with spark_engine.visit_session(settings, str(uuid4())) as session:
            valid = "second"
            file.write_text(valid)
            assert session.conf.get("tidemark.test", "present") == "present"
            valid = "third"
            with pytest.raises(PySparkException, match="expired"):
                session.conf.get("tidemark.test", "present")


def test_the_homes_token_is_created_once_and_is_private(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "new")
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(token_of, [settings] * 8))
    assert len(tokens) == 1
    assert stat.S_IMODE((settings.home / "token").stat().st_mode) == 0o600
    assert [file.name for file in settings.home.iterdir()] == ["token"]


@pytest.mark.parametrize(("place", "shortest", "longest"), [("here", 1, 10), ("elsewhere", 20, 50)])
def test_requests_of_a_session_fail_within_a_minute_after_the_loss_of_the_engine(
    place: str, shortest: int, longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    monkeypatch.setattr(retries.Retrying.__init__, "__defaults__", (waits.append,))
    settings = Settings(home=tmp_path)
    with serve() as (engine, port):
        url = f"sc://localhost:{port}"
        spark = open_session(create_channel(url))
        remote = None if place == "here" else url
        prepare_session(spark, settings.model_copy(update={"remote": remote}))
        engine.fault = FAULTS["UNAVAILABLE"]
        with pytest.raises(EngineLostError):
            spark.range(1).collect()
        client: Any = spark
        client.client.close()
    assert shortest < sum(waits) < longest
