"""An ingest that follows its source in parallel with a test."""

import faulthandler
import queue
import threading
from typing import TypeVar

from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Connector
from tidemark_streaming.ingest.ingest import follow_source

PATIENCE = 120.0

T = TypeVar("T")


class Following:
    """An ingest that follows its source in a thread until `end` is called."""

    def __init__(self, warehouse: Warehouse, connector: Connector) -> None:
        self._said: queue.Queue[str | Exception] = queue.Queue()
        self._rows: queue.Queue[int | Exception] = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, args=(warehouse, connector), daemon=True
        )
        self._thread.start()

    def _follow(self, warehouse: Warehouse, connector: Connector) -> None:
        try:
            for commit in follow_source(warehouse, connector, on_progress=self._said.put):
                self._rows.put(sum(a.rows for a in commit.arrivals))
                if self._stop.is_set():
                    return
        except Exception as error:
            # The awaited result will not come.
            self._rows.put(error)
            self._said.put(error)

    def brings(self, rows: int) -> None:
        """Wait until the given number of additional rows is ingested."""
        while rows > 0:
            rows -= self._next(self._rows)
        assert rows == 0

    def says(self) -> str:
        """Return the next message."""
        return self._next(self._said)

    def end(self) -> None:
        """Stop after the next commit."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _next(self, of: "queue.Queue[T | Exception]") -> T:
        try:
            found = of.get(timeout=PATIENCE)
        except queue.Empty:
            faulthandler.dump_traceback()
            said = [self._said.get() for _ in range(self._said.qsize())]
            raise AssertionError(f"Nothing more came. What it said: {said}") from None
        if isinstance(found, Exception):
            raise found
        return found
