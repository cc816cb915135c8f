"""Compute rows once and completely, before any step depends on them.

The engine computes a cached frame at its first use, and a query that uses the frame twice may lose
rows (SPARK-57547). So nothing is cached in the engine here. A few rows are fetched into memory,
many are written to separate files, and the next steps read these.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from threading import Lock
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base import thresholds
from tidemark.engine.queries.requests import fetch
from tidemark.store import claims
from tidemark.store.refusals import translate_refusals
from tidemark.store.rows import Rows, frame
from tidemark.store.warehouse import SCRATCH, Warehouse


class TempTables:
    """Temporary files of one piece of work, removed when it ends."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._name = f"{SCRATCH}/{uuid4().hex}"
        self._used = False
        self._claim: int | None = None
        self._claiming = Lock()

    def materialize(self, rows: DataFrame, *, few: bool) -> Rows:
        """Compute rows now and return them.

        Args:
            few: true if the rows are known to fit into memory. Otherwise they come into memory only
                if there are at most `INLINE_ROWS`, and are written to files if there are more.
        """
        if few:
            with translate_refusals("compute rows"):
                return fetch(rows)
        return self._aside(rows, thresholds.INLINE_ROWS)

    def gather(self, tables: Iterator[pa.Table]) -> Rows:
        """Gather one or more tables of rows in memory, or in files if they are too large."""
        found, size = list[pa.Table](), 0
        for table in tables:
            found.append(table)
            size += table.nbytes
            if size > thresholds.GATHERED_BYTES:
                self._begin()
                return self._warehouse.spill(chain(found, tables), self._name)
        return pa.concat_tables(found)

    def materialize_frame(self, rows: DataFrame, *, few: bool = False) -> DataFrame:
        """Compute rows now and return them as a frame of the engine.

        Args:
            few: true if the rows fit into memory; each query then sends them to the engine.
        """
        materialized = self.materialize(rows, few=True) if few else self._aside(rows, 0)
        return frame(self._warehouse.spark, materialized)

    def _aside(self, rows: DataFrame, most: int) -> Rows:
        self._begin()
        return self._warehouse.materialize(rows, self._name, most)

    def _begin(self) -> None:
        with self._claiming:
            if not self._used:
                self._claim = claims.claim(self._warehouse.path(self._name))
                self._used = True

    def clear(self) -> None:
        """Remove the files, if any were written."""
        if self._used:
            try:
                # An error in the removal must not hide the error that ended the work. It can occur
                # because the engine continues for a moment with earlier queries and writes to the
                # folder. The claim is released, so the next sweep (`claims`) or maintenance removes
                # the rest.
                with suppress(OSError):
                    self._warehouse.remove(self._name)
            finally:
                claims.release(self._claim)


@contextmanager
def temp_tables(warehouse: Warehouse) -> Iterator[TempTables]:
    """Yield a place for computed rows. They are removed when the block ends."""
    place = TempTables(warehouse)
    try:
        yield place
    finally:
        place.clear()
