"""Tests of the embedded server: one per home, restarted after a crash, stopped cleanly."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conftest import SHORT_LIVED
from helpers.data.landing import BY_MINUTE, connector, land_minutes, log_rows
from helpers.data.runs import run_all
from helpers.processes.ending import left
from tidemark import engine as spark_engine
from tidemark.base.errors import EngineError, EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine import Answer
from tidemark.engine.launch import archive, jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark.engine.server import HUNG_DEADLINE, managed_of
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.ingest.ingest import ingest

# Starts, kills and hangs its own engine.
pytestmark = pytest.mark.slow

ORPHAN = """
import os, signal, warnings
from tidemark.engine import connect_session
from tidemark.engine.ports import is_listening
from tidemark.engine.server import managed_of
from tidemark.base.settings import Settings
spark = connect_session(Settings())
os.kill(managed_of(Settings()).find_running().pid, signal.SIGKILL)
while is_listening(Settings().engine_port):
    pass
# As in who runs tests, where filters do not last.
warnings.filterwarnings("always", r"\\[RETRIES_EXCEEDED\\]")
"""

FOLLOWER = """
import sys
from pathlib import Path
from helpers.data.landing import connector
from tidemark.base.settings import Settings
from tidemark.engine import connect_session
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import follow_source
warehouse = Warehouse(connect_session(Settings()), *sys.argv[1:3], registered=False)
for commit in follow_source(warehouse, connector(Path(sys.argv[3])), 0.1):
    print(commit.arrivals[-1].arrival, flush=True)
"""

ENSURE = """
from tidemark.engine import ensure_engine
from tidemark.base.settings import Settings
ensure_engine(Settings(), print)
"""


def environment(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "TIDEMARK_HOME": str(settings.home),
        "TIDEMARK_ENGINE_PORT": str(settings.engine_port),
        "TIDEMARK_ENGINE_MEMORY": settings.engine_memory,
        "TIDEMARK_ENGINE_JAVA_OPTIONS": settings.engine_java_options,
    }


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, list[str]]]:
    """Yield settings of a server that two processes start at once, and the output of each."""
    home, port = tmp_path_factory.mktemp("own"), free_port()
    settings = Settings(
        home=home,
        engine_port=port,
        engine_memory="1g",
        engine_java_options=f"{SHORT_LIVED} -Xlog:class+load:file={home}/classes.log",
    )
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE],
            env=environment(settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    told = [asker.communicate()[0] for asker in askers]
    yield settings, told
    spark_engine.stop_engine(settings)


@pytest.fixture
def own(started: tuple[Settings, list[str]]) -> Settings:
    return started[0]


def pid_of(settings: Settings) -> int:
    record = managed_of(settings).find_running()
    assert record is not None
    return record.pid


def test_an_engine_continues_after_the_machine_was_asleep(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        engine_port=free_port(),
        engine_memory="1g",
        engine_java_options=SHORT_LIVED,
        engine_conf={
            "spark.network.timeout": "12s",
            "spark.executor.heartbeatInterval": "5s",
            "spark.executor.heartbeat.maxFailures": "2",
            "spark.network.timeoutInterval": "1s",
        },
    )
    spark_engine.ensure_engine(settings)
    spark = spark_engine.connect_session(settings)
    try:
        process = psutil.Process(pid_of(settings))
        process.suspend()
        # Longer than a heartbeat may be missing.
        time.sleep(15)
        process.resume()
        # Spark would exit after two heartbeats that fail.
        with pytest.raises(psutil.TimeoutExpired):
            process.wait(15)
        assert spark.range(3).count() == 3
    finally:
        spark.stop()
        spark_engine.stop_engine(settings)


def test_two_processes_that_start_at_once_share_one_server(
    started: tuple[Settings, list[str]],
) -> None:
    settings, told = started
    assert sorted("Starting the Spark engine" in lines for lines in told) == [False, True], told
    assert spark_engine.read_status(settings).answer is Answer.READY
    marker = f"@{settings.home}/scratch/"
    servers = [p for p in psutil.process_iter(["cmdline"]) if marker in str(p.info["cmdline"])]
    assert [server.pid for server in servers] == [pid_of(settings)]


@pytest.mark.nightly
def test_classes_load_from_the_archive_if_one_exists(own: Settings) -> None:
    if not archive.archive_options(find_java(), jars.class_path(find_java())):
        pytest.skip("no archive of the engine's classes was made here: `make archive`")
    loaded = (own.home / "classes.log").read_text().splitlines()
    taken = [line for line in loaded if line.endswith("source: shared objects file (top)")]
    assert len(taken) > 8_000
    assert len(taken) > len(loaded) / 2


def test_java_runs_the_server_without_a_script(own: Settings) -> None:
    server = psutil.Process(pid_of(own))
    assert Path(server.exe()).name == "java"
    arguments = Path(server.cmdline()[1].removeprefix("@")).read_text().splitlines()
    assert '"org.apache.spark.deploy.SparkSubmit"' in arguments
    # Java opens these packages to Spark only because Spark's launcher passes the option.
    assert '"--add-opens=java.base/java.nio=ALL-UNNAMED"' in arguments


def test_ensure_does_nothing_if_the_server_runs(own: Settings) -> None:
    before = pid_of(own)
    lines: list[str] = []
    spark_engine.ensure_engine(own, lines.append, lambda: lines.append("meanwhile"))
    assert lines == []
    assert pid_of(own) == before


def test_the_server_listens_on_loopback_only(own: Settings) -> None:
    listening = [
        connection.laddr
        for connection in psutil.Process(pid_of(own)).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert own.engine_port in {place.port for place in listening}
    assert {place.ip.removeprefix("::ffff:") for place in listening} == {"127.0.0.1"}


def test_the_command_line_hides_the_token(own: Settings) -> None:
    token = (own.home / "token").read_text()
    assert token not in " ".join(psutil.Process(pid_of(own)).cmdline())


def test_sessions_use_utc_and_ansi_mode(own: Settings) -> None:
    session = spark_engine.connect_session(own)
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session.conf.get("spark.sql.ansi.enabled") == "true"
    session.stop()


def test_status_reports_address_pid_start_and_memory(own: Settings) -> None:
    status = spark_engine.read_status(own)
    assert status.embedded
    assert status.address == f"sc://localhost:{own.engine_port}"
    assert status.pid == pid_of(own)
    assert status.since is not None
    assert status.memory is not None
    assert status.memory > 100_000_000
    assert status.log == own.home / "logs" / "engine.log"


def test_another_port_than_the_running_servers_is_refused(own: Settings) -> None:
    other = own.model_copy(update={"engine_port": free_port()})
    with pytest.raises(EngineError, match=rf"runs on port {own.engine_port}, .*`tidemark down`"):
        spark_engine.ensure_engine(other)


def test_a_killed_server_restarts_with_its_tables(own: Settings) -> None:
    before = pid_of(own)
    session = spark_engine.connect_session(own)
    session.sql("CREATE TABLE kept USING delta AS SELECT 7 AS n")
    process = psutil.Process(before)
    process.kill()
    assert left([process]) == []
    session.client.close()
    lines: list[str] = []
    spark_engine.ensure_engine(own, lines.append, lambda: lines.append("meanwhile"))
    assert lines[0] == "The engine died: restarting it"
    assert lines.index("meanwhile") == len(lines) - 2, "done before the engine answered"
    assert pid_of(own) != before
    session = spark_engine.connect_session(own)
    assert session.table("kept").collect()[0].n == 7
    session.stop()


def test_a_server_that_is_killed_while_it_starts_is_started_again(own: Settings) -> None:
    spark_engine.stop_engine(own)
    killed, lines = list[int](), list[str]()

    def kill() -> None:
        killed.append(pid_of(own))
        psutil.Process(killed[0]).kill()

    spark_engine.ensure_engine(own, lines.append, kill)
    assert len(killed) == 1
    assert pid_of(own) != killed[0]
    assert lines.count("The engine exited while it was starting: starting it again") == 1


def test_each_event_counts_once_after_all_processes_were_killed(
    own: Settings, tmp_path: Path
) -> None:
    """This is a restart of the machine, without the loss of what the disk had not yet written."""
    place, landing = (own.warehouse, "restarted"), tmp_path / "landing"
    land_minutes(landing, 0, 4)
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, *place, str(landing)],
        env=environment(own) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert any(line == "3\n" for line in follower.stdout)
        session = spark_engine.connect_session(own)
        incremental(Warehouse(session, *place, registered=False), BY_MINUTE)
        land_minutes(landing, 4, 8)
        engine = psutil.Process(pid_of(own))
        engine.kill()
        follower.kill()
    assert left([engine]) == []
    session.client.close()
    spark_engine.ensure_engine(own)
    session = spark_engine.connect_session(own)
    warehouse = Warehouse(session, *place, registered=False)
    list(ingest(warehouse, connector(landing)))
    run_all(warehouse, BY_MINUTE)
    rows = log_rows(warehouse)
    assert len(rows) == len(set(rows)) == 16
    assert check_parity(warehouse, BY_MINUTE).is_equal
    session.stop()


@pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]")
def test_a_client_of_a_dead_server_fails_without_hanging(own: Settings) -> None:
    session = spark_engine.connect_session(own)
    client = subprocess.run(
        [sys.executable, "-c", ORPHAN], env=environment(own), capture_output=True, timeout=180
    )
    assert (client.returncode, client.stderr) == (0, b"")
    with pytest.raises(EngineLostError):
        session.range(1).count()
    session.client.close()
    spark_engine.ensure_engine(own)


@pytest.mark.nightly
def test_a_hung_server_is_replaced(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.engine.server.HUNG_DEADLINE", min(HUNG_DEADLINE, 2.0))
    before = pid_of(own)
    os.kill(before, signal.SIGSTOP)
    lines: list[str] = []
    spark_engine.ensure_engine(own, lines.append)
    assert lines[0] == "The engine is running but does not answer: restarting it"
    assert pid_of(own) != before
    assert not psutil.pid_exists(before)


def test_stopping_frees_the_port_and_leaves_no_process(own: Settings) -> None:
    server = psutil.Process(pid_of(own))
    family = [server, *server.children(recursive=True)]
    assert spark_engine.stop_engine(own) is True
    assert left(family) == []
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", own.engine_port)) != 0
    assert spark_engine.stop_engine(own) is False
    assert spark_engine.read_status(own).answer is Answer.SILENT


def test_a_port_in_use_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EngineError, match=rf"^Port {port} .*TIDEMARK_ENGINE_PORT"):
            spark_engine.ensure_engine(Settings(home=tmp_path, engine_port=port))


def test_a_server_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, engine_port=free_port(), engine_memory="1m")
    with pytest.raises(EngineError, match=r"exited while it was starting: .*heap.*engine.log"):
        spark_engine.ensure_engine(settings)


def test_an_unwritable_home_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = Settings(home=tmp_path / "file" / "home", engine_port=free_port())
    with pytest.raises(EngineError, match=r"can't write in its home .*TIDEMARK_HOME"):
        spark_engine.ensure_engine(settings)


def test_stopping_an_unused_home_creates_no_folder(tmp_path: Path) -> None:
    assert spark_engine.stop_engine(Settings(home=tmp_path / "none")) is False
    assert not (tmp_path / "none").exists()
