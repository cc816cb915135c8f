"""Fixtures: one engine for the tests of a session, and a new database for each test with tables."""

import compileall
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from helpers.kafka.topics import Topics
from helpers.processes.object_store import serve_bucket
from helpers.suite.durations import Durations
from helpers.suite.fast import FAST_WITH_ENGINE
from helpers.suite.interruption import HOMES, Interruption
from helpers.suite.session_settings import SessionSettings
from helpers.suite.shared_engine import start_or_join
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import broker
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.testing.small_engine import INTERPRETING, start_or_reuse

TESTS = Path(__file__).parent
SESSION = pytest.StashKey[SparkSession]()
SETTINGS = pytest.StashKey[SessionSettings]()
BROKER = "TIDEMARK_TEST_BROKER"
"""The variable with the home of a broker that sessions reuse, for repeated runs of a few tests. It
must not be the engine's home, because tests search those files for protected values."""

MUTANT = "MUTANT_UNDER_TEST"
"""The variable with the name of the change that mutmut tests, for `make mutants`."""

SHORT_LIVED = f"{INTERPRETING} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java options of a short-lived engine: only the C1 compiler, and a code cache that does not fill
up within a minute."""


COMPILED = {
    "spark.sql.codegen.fallback": "false",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
}
"""Spark settings with which a query fails if the code that the engine generates can't be compiled.
By default, the engine interprets such a query, ten times more slowly, and only logs a warning."""

_WRITES_NO_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
"""Whether the environment asks Python to write no bytecode. The collection writes it all the same:
otherwise, each worker compiles all tests."""


def pytest_collection_finish() -> None:
    """Write no more bytecode if the environment asks for that."""
    sys.dont_write_bytecode = _WRITES_NO_BYTECODE


def pytest_configure(config: pytest.Config) -> None:
    """Disable the background AppCDS archive, which slows tests down, and register the plugins.

    The plugins end the session and order its files. Hypothesis does not time the tests.
    """
    untimed = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=untimed)
    # A mutant is killed by any failing example, and by the same ones each time.
    hypothesis.settings.register_profile(
        "mutants",
        hypothesis.settings.get_profile("untimed"),
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutants" if MUTANT in os.environ else "untimed")
    os.environ["TIDEMARK_ENGINE_ARCHIVE"] = "false"
    os.environ.setdefault("TIDEMARK_DURABLE", "false")
    if not hasattr(config, "workerinput"):
        os.environ[HOMES] = tempfile.mkdtemp(prefix="tidemark-tests-")
        # Otherwise, each process of a test compiles them if the environment asks for no bytecode.
        for packages in ("platform", "streaming", "assets"):
            compileall.compile_dir(TESTS.parent / packages, quiet=2)
        config.pluginmanager.register(Interruption(Path(os.environ[HOMES])))
    else:
        # A session in the background of a shell ignores SIGINT. A run of Dagster in a worker would
        # then ignore SIGTERM, too, and so would the processes of all later tests.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(Durations(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the shared engine or broker, and those that are not fast as slow.

    A nightly test must also be slow, so that exactly one target runs it.
    """
    for item in items:
        if isinstance(item, pytest.Function):
            file, _, _ = item.nodeid.partition("::")
            is_fast = item.originalname in FAST_WITH_ENGINE.get(file, ())
            if not {"engine", "topics"}.isdisjoint(item.fixturenames):
                item.add_marker("engine")
                if not is_fast:
                    item.add_marker("slow")
            elif is_fast:
                raise pytest.UsageError(f"{item.nodeid} is in FAST_WITH_ENGINE, and needs none.")
        if item.get_closest_marker("nightly") and not item.get_closest_marker("slow"):
            raise pytest.UsageError(f"{item.nodeid} is nightly, and not marked as slow.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Restore the session of `spark` as the default one.

    A test that opens and stops another session leaves no default, and the order of files varies.
    """
    session = item.config.stash.get(SESSION, None)
    if isinstance(session, ConnectSession):
        ConnectSession._default_session = session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Fail at the end of a module that leaves other settings in the session of `spark`."""
    session = item.config.stash.get(SESSION, None)
    is_last = nextitem is None or nextitem.path != item.path
    changed = ""
    if session is not None and is_last:
        # The session may be closed after the teardown.
        changed = item.config.stash[SETTINGS].describe_changes(session)
    yield
    if changed:
        pytest.fail(f"{item.path.name} leaves settings in the session, as (before, now): {changed}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded."""
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for name, figure in report.user_properties:
                terminalreporter.write_line(f"{report.nodeid}: {name}: {figure}")


@pytest.fixture(scope="session")
def engine() -> Settings:
    """Return the settings of a running engine that all workers use, with a new home.

    With `TIDEMARK_TEST_HOME`, use the engine of that home (and `TIDEMARK_ENGINE_PORT`): it is
    started if necessary and not stopped, for repeated runs of a few tests.
    """
    homes = Path(os.environ[HOMES])
    settings, kept = start_or_reuse(homes / "engine", memory="4g")
    settings = settings.model_copy(update={"engine_conf": COMPILED})
    with pytest.MonkeyPatch.context() as patch:
        if kept:
            patch.delenv(HOMES)
        # The engine's Python workers import the test modules to unpickle functions.
        paths = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        if kept:
            spark_engine.ensure_engine(settings)
            return settings
        return start_or_join(settings, Path(tempfile.mkdtemp(dir=homes)))


@pytest.fixture(scope="session")
def tidemark_engine(engine: Settings) -> Settings:
    """Return the running engine for the package's own fixture."""
    return engine


@pytest.fixture(scope="session")
def spark(engine: Settings, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """Yield a session on the tests' engine."""
    session = pytestconfig.stash[SESSION] = spark_engine.connect_session(engine)
    pytestconfig.stash[SETTINGS] = SessionSettings(session)
    yield session
    del pytestconfig.stash[SESSION]
    session.stop()


@pytest.fixture(scope="session")
def topics() -> Iterator[Topics]:
    """Yield the topics of a real broker, which runs as long as the tests of this process.

    With `TIDEMARK_TEST_BROKER`, use the broker of that home (and `TIDEMARK_KAFKA_PORT`): it is
    started if necessary and not stopped.
    """
    with pytest.MonkeyPatch.context() as patch:
        if kept := os.environ.get(BROKER):
            settings = Settings(home=Path(kept))
            patch.delenv(HOMES)
        else:
            home = Path(tempfile.mkdtemp(dir=os.environ[HOMES]))
            settings = Settings(home=home, kafka_port=free_port())
        broker.start_broker(settings)
    yield Topics(broker.broker_address(settings), settings.home / "kafka" / "data")
    if not kept:
        broker.broker_process(settings).stop(deadline=5)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait one second for brokers that do not answer, instead of ten."""
    monkeypatch.setattr(Cluster.__init__, "__defaults__", (1.0,))


@pytest.fixture(scope="module")
def catalogued(request: pytest.FixtureRequest) -> bool:
    """Return whether the tables of `warehouse` and `shared` are in the engine's catalog.

    A module that reads tables by name sets `REGISTERED = True`. In others they are not: the catalog
    entry takes longer than a small table, and an asset has six tables.
    """
    return getattr(request.module, "REGISTERED", False)


@pytest.fixture
def warehouse(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    """Return an empty warehouse: a database that no other test uses."""
    return _empty(engine, spark, catalogued)


@pytest.fixture(scope="module")
def shared(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    """Return an empty warehouse for all tests of a module."""
    return _empty(engine, spark, catalogued)


def _empty(engine: Settings, spark: SparkSession, catalogued: bool) -> Warehouse:
    return Warehouse(spark, engine.warehouse, f"test_{uuid4().hex[:12]}", catalogued)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Yield the address of a bucket, which environment variables make accessible."""
    with serve_bucket() as address:
        yield address
