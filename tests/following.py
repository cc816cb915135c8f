"""An ingest of tests that follows its source beside the test."""

import queue
import threading

from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest import follow
from tidemark_streaming.kafka import KafkaFeed

PATIENCE = 120.0


class Following:
    """An ingest that follows in a thread, until it is told to stop."""

    def __init__(self, warehouse: Warehouse, feed: KafkaFeed) -> None:
        self.said: queue.Queue[str] = queue.Queue()
        self._rows: queue.Queue[int | Exception] = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(warehouse, feed), daemon=True)
        self._thread.start()

    def _follow(self, warehouse: Warehouse, feed: KafkaFeed) -> None:
        try:
            for commit in follow(warehouse, feed, tell=self.said.put):
                self._rows.put(sum(a.rows for a in commit.arrivals))
                if self._stop.is_set():
                    return
        except Exception as error:
            self._rows.put(error)

    def brings(self, rows: int) -> None:
        """Wait until so many more have come."""
        while rows > 0:
            found = self._rows.get(timeout=PATIENCE)
            if isinstance(found, Exception):
                raise found
            rows -= found
        assert rows == 0

    def end(self) -> None:
        """Let the next commit be the last."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
