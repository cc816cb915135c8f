"""One embedded engine for the tests of a process, and a database of its own for each test that
wants tables."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from helpers.kafka.topics import Topics
from helpers.suite.durations import Durations
from helpers.suite.interruption import HOMES, Interruption
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import broker
from tidemark_streaming.testing.small_engine import INTERPRETING, start_or_reuse

TESTS = Path(__file__).parent
SESSION = pytest.StashKey[SparkSession]()
BROKER = "TIDEMARK_TEST_BROKER"
"""A variable: the home of a broker that is kept, for who runs a few tests again and again; another
one than the engine's, in whose files tests look for what no file may have."""

SHORT_LIVED = f"{INTERPRETING} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Of an engine that lives for some runs only: the quick compiler alone, with a cache for its code
that does not fill within a minute."""


def pytest_configure(config: pytest.Config) -> None:
    """Make no archive in the background, where it would take the time of tests. Register what
    ends the session and what orders its files."""
    os.environ["TIDEMARK_ENGINE_ARCHIVE"] = "false"
    os.environ.setdefault("TIDEMARK_DURABLE", "false")
    if not hasattr(config, "workerinput"):
        os.environ[HOMES] = tempfile.mkdtemp(prefix="tidemark-tests-")
        config.pluginmanager.register(Interruption(Path(os.environ[HOMES])))
    if config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(Durations(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the engine or the broker of their process, for `-m "not engine"`."""
    for item in items:
        if isinstance(item, pytest.Function) and not {"engine", "topics"}.isdisjoint(
            item.fixturenames
        ):
            item.add_marker("engine")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make the session of `spark` the default one again: a test that opens and stops another one
    leaves none, and the order of the files changes."""
    session = item.config.stash.get(SESSION, None)
    if isinstance(session, ConnectSession):
        ConnectSession._default_session = session


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded."""
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for name, figure in report.user_properties:
                terminalreporter.write_line(f"{report.nodeid}: {name}: {figure}")


@pytest.fixture(scope="session")
def engine() -> Settings:
    """The settings of an engine that runs: token, port and home are its own.

    With `TIDEMARK_TEST_HOME` it is the engine of that home (and of `TIDEMARK_ENGINE_PORT`), started
    where it does not run and kept afterwards: for who runs a few tests again and again.
    """
    settings, kept = start_or_reuse(Path(tempfile.mkdtemp(dir=os.environ[HOMES])), memory="2g")
    with pytest.MonkeyPatch.context() as patch:
        if kept:
            patch.delenv(HOMES)
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
def spark(engine: Settings, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A session on the tests' engine."""
    session = pytestconfig.stash[SESSION] = spark_engine.session(engine)
    yield session
    del pytestconfig.stash[SESSION]
    session.stop()


@pytest.fixture(scope="session")
def topics() -> Iterator[Topics]:
    """The topics of a real broker, which runs as long as the tests of this process.

    With `TIDEMARK_TEST_BROKER` it is the broker of that home (and of `TIDEMARK_KAFKA_PORT`),
    started where it does not run and kept afterwards.
    """
    with pytest.MonkeyPatch.context() as patch:
        if kept := os.environ.get(BROKER):
            settings = Settings(home=Path(kept))
            patch.delenv(HOMES)
        else:
            home = Path(tempfile.mkdtemp(dir=os.environ[HOMES]))
            settings = Settings(home=home, kafka_port=free_port())
        broker.start(settings)
    yield Topics(broker.address(settings), settings.home / "kafka" / "data")
    if not kept:
        broker.broker_process(settings).stop(deadline=5)


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
    return Warehouse(spark, engine.warehouse, f"test_{uuid4().hex[:12]}", catalogued)
