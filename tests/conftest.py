"""One embedded engine for the tests of a process, and a database of its own for each test that
wants tables."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import broker
from tidemark_streaming.testing.small_engine import INTERPRETING, kept_or_new
from topics import Topics

TESTS = Path(__file__).parent
STATUS = pytest.StashKey[int]()
COMMITTER = "TIDEMARK_TEST_COMMITTER"
"""A variable: who commits to the tables of `warehouse` and `shared`, `direct` or `engine`; by
default who is right for the place."""
BROKER = "TIDEMARK_TEST_BROKER"
"""A variable: the home of a broker that is kept, for who runs a few tests again and again; another
one than the engine's, in whose files tests look for what no file may have."""
HOMES = "TIDEMARK_TEST_HOMES"
"""A variable: the folder of the engines' homes, one for each process of tests."""

SHORT_LIVED = f"{INTERPRETING} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Of an engine that lives for some runs only: the quick compiler alone, with a cache for its code
that does not fill within a minute."""


def pytest_configure() -> None:
    """End on SIGTERM as on an interrupt: fixtures stop what they started. And nothing is made in
    the background, where it would take the time of tests."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ["TIDEMARK_ENGINE_ARCHIVE"] = "false"
    if HOMES not in os.environ:
        os.environ[HOMES] = tempfile.mkdtemp(prefix="tidemark-tests-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[STATUS] = exitstatus


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded."""
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for name, figure in report.user_properties:
                terminalreporter.write_line(f"{report.nodeid}: {name}: {figure}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what runs for the homes, also of workers that had no time to; after an interrupt, end
    without Python's own farewell.

    That waits for ever for a gRPC channel whose call was interrupted in a frame that pytest keeps.
    """
    if not hasattr(config, "workerinput"):
        homes = Path(os.environ.pop(HOMES))
        for home in homes.iterdir():
            for name in ("daemon", "webserver", "watch", "kafka"):
                spark_engine.Managed(home, name).stop()
            spark_engine.stop(Settings(home=home))
        shutil.rmtree(homes, ignore_errors=True)
    if config.stash.get(STATUS, 0) == pytest.ExitCode.INTERRUPTED:
        sys.stdout.flush()
        os._exit(pytest.ExitCode.INTERRUPTED)


@pytest.fixture(scope="session")
def engine() -> Settings:
    """The settings of an engine that runs: token, port and home are its own.

    With `TIDEMARK_TEST_HOME` it is the engine of that home (and of `TIDEMARK_ENGINE_PORT`), started
    where it does not run and kept afterwards: for who runs a few tests again and again.
    """
    settings, _ = kept_or_new(Path(tempfile.mkdtemp(dir=os.environ[HOMES])), memory="2g")
    with pytest.MonkeyPatch.context() as patch:
        # The engine's Python workers unpickle functions of test modules, and import these.
        paths = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        spark_engine.ensure(settings)
    return settings


@pytest.fixture(scope="session")
def tidemark_engine(engine: Settings) -> Settings:
    """The package's own fixture, on the engine that is there."""
    return engine


@pytest.fixture(scope="session")
def spark(engine: Settings) -> Iterator[SparkSession]:
    """A session on the tests' engine."""
    session = spark_engine.session(engine)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def topics() -> Iterator[Topics]:
    """The topics of a real broker, which runs as long as the tests of this process.

    With `TIDEMARK_TEST_BROKER` it is the broker of that home (and of `TIDEMARK_KAFKA_PORT`),
    started where it does not run and kept afterwards.
    """
    if kept := os.environ.get(BROKER):
        settings = Settings(home=Path(kept))
    else:
        home = Path(tempfile.mkdtemp(dir=os.environ[HOMES]))
        settings = Settings(home=home, kafka_port=free_port())
    broker.start(settings)
    yield Topics(broker.address(settings), settings.home / "kafka" / "data")
    if not kept:
        broker.process(settings).stop()


@pytest.fixture(scope="module")
def catalogued(request: pytest.FixtureRequest) -> bool:
    """Whether the tables of `warehouse` and `shared` are in the engine's catalog too.

    A module that asks for no table by its name says `REGISTERED = False`: an entry takes the engine
    longer than a small table does, and an asset has half a dozen.
    """
    return getattr(request.module, "REGISTERED", True)


@pytest.fixture
def warehouse(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    """An empty warehouse: a database that no other test uses."""
    return _empty(engine, spark, catalogued)


@pytest.fixture(scope="module")
def shared(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    """An empty warehouse for all tests of a module."""
    return _empty(engine, spark, catalogued)


def _empty(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    name, committer = f"test_{uuid4().hex[:12]}", os.environ.get(COMMITTER)
    return Warehouse(spark, engine.warehouse, name, catalogued, committer)
