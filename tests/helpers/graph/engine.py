"""The engine of a case: a session for its tables, and its death while an operation runs."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psutil

from helpers.graph.mart import forget
from tidemark import engine as spark_engine
from tidemark.base.errors import EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine.connect import prepare_session
from tidemark.engine.server import managed_of
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.scenario.run.simulate import open_small_session

_QUERY_SECONDS = 0.02
"""The time for which a query runs before its engine is killed."""


class CaseEngine:
    """The engine that computes the tables of a case.

    Args:
        settings: its settings.
        location, database: the place of the tables.
    """

    def __init__(self, settings: Settings, location: str, database: str) -> None:
        self.settings = settings
        self._place = location, database
        self._session = ExitStack()
        self._store: Warehouse | None = None
        self._has_catalog = False

    def open(self) -> Warehouse:
        """Return the tables of the case in a new session, on a new engine if the last one died."""
        self._session.close()
        spark_engine.ensure_engine(self.settings)
        spark = spark_engine.connect_session(self.settings)
        self._session.callback(spark.stop)
        store = self._session.enter_context(
            open_small_session(Warehouse(spark, *self._place, registered=False))
        )
        # `small` clones the session.
        prepare_session(store.spark, self.settings)
        self._store = store
        return store

    def address(self) -> str:
        """Return the engine's address, for a process that finds the tables in the catalog."""
        self._has_catalog = True
        return spark_engine.ensure_engine(self.settings)

    def close(self) -> None:
        # An error of the case is more important.
        with suppress(EngineLostError):
            if self._has_catalog and self._store is not None:
                forget(self._store)
        self._session.close()

    @contextmanager
    def dying(self, store: Warehouse, query: int | None) -> Iterator[None]:
        """Within the context, the engine is killed while a query runs, at the latest at the end.

        Args:
            query: the number of the query; None if the engine is not killed.
        """
        if query is None:
            yield
            return
        session: Any = store.spark
        deadly = _DeadlyStub(session.client._stub, query, self.kill)
        session.client._stub = deadly
        try:
            yield
        finally:
            session.client._stub = deadly.stub
            if deadly.left > 0:
                self.kill()

    def is_running(self) -> bool:
        return managed_of(self.settings).find_running() is not None

    def kill(self) -> None:
        record = managed_of(self.settings).find_running()
        assert record is not None
        process = psutil.Process(record.pid)
        process.kill()
        process.wait()


class _DeadlyStub:
    """The requests of a client, one of which kills the engine.

    Args:
        stub: the requests.
        left: the number of queries until then.
    """

    def __init__(self, stub: Any, left: int, kill: Any) -> None:  # noqa: ANN401
        self.stub = stub
        self.left = left
        self._kill = kill

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.stub, name)

    def ExecutePlan(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401, N802
        responses = self.stub.ExecutePlan(*arguments, **options)
        self.left -= 1
        if self.left == 0:
            time.sleep(_QUERY_SECONDS)
            self._kill()
        return responses
