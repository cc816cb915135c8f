"""Rows that are computed once and in full, before anything is decided by them.

A frame that the engine keeps is computed when it is first used, and where a query uses it twice,
its rows may be lost (SPARK-57547). So nothing is kept by the engine here: few rows come into
memory, many are written to files of their own, and what goes on from there reads these.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from threading import Lock
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.engine.requests import fetch
from tidemark.store import claims
from tidemark.store.refusals import translated
from tidemark.store.rows import SENT, Rows, frame
from tidemark.store.warehouse import SCRATCH, Warehouse

GATHERED_BYTES = 256 << 20
"""Bytes of rows that are gathered in memory, at most."""


class Scratch:
    """Files of one piece of work, which go when it ends."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._name = f"{SCRATCH}/{uuid4().hex}"
        self._used = False
        self._claim: int | None = None
        self._claiming = Lock()

    def hold(self, rows: DataFrame, *, few: bool) -> Rows:
        """Rows, computed now.

        Args:
            few: whether they fit into memory; if that is not known, those that do are there too.
        """
        if few:
            with translated("compute rows"):
                return fetch(rows)
        return self._aside(rows, SENT)

    def gather(self, tables: Iterator[pa.Table]) -> Rows:
        """Gather rows that come in tables, of which there is at least one: in memory, or in files
        for the engine if they are too many."""
        found, size = list[pa.Table](), 0
        for table in tables:
            found.append(table)
            size += table.nbytes
            if size > GATHERED_BYTES:
                self._begin()
                return self._warehouse.spill(chain(found, tables), self._name)
        return pa.concat_tables(found)

    def keep(self, rows: DataFrame, *, few: bool = False) -> DataFrame:
        """Rows, computed now, for the engine.

        Args:
            few: whether they fit into memory, from where they go with each query.
        """
        held = self.hold(rows, few=True) if few else self._aside(rows, 0)
        return frame(self._warehouse.spark, held)

    def _aside(self, rows: DataFrame, most: int) -> Rows:
        self._begin()
        return self._warehouse.aside(rows, self._name, most)

    def _begin(self) -> None:
        with self._claiming:
            if not self._used:
                self._claim = claims.claim(self._warehouse.path(self._name))
                self._used = True

    def clear(self) -> None:
        """Remove the files, if any were written."""
        if self._used:
            try:
                # What ended the work is to be told, and not that the engine, which may go on for a
                # moment with what it was asked for, has written there meanwhile. Without a claim
                # the rest goes with the next sweep (`claims`) or maintenance.
                with suppress(OSError):
                    self._warehouse.remove(self._name)
            finally:
                claims.release(self._claim)


@contextmanager
def scratch(warehouse: Warehouse) -> Iterator[Scratch]:
    """A place for rows that are held as long as the block lasts."""
    place = Scratch(warehouse)
    try:
        yield place
    finally:
        place.clear()
