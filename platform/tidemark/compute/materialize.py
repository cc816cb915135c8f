"""Compute rows once and completely, before any step depends on them.

The engine computes a cached frame at its first use, and a query that uses the frame twice may lose
rows (SPARK-57547). This module therefore caches nothing in the engine: it fetches a few rows into
memory, and writes many rows to separate files. The next steps read the rows from there.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from threading import Lock
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base import thresholds
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store import claims
from tidemark.store.refusals import translate_refusals
from tidemark.store.rows import Rows, to_frame
from tidemark.store.warehouse import SCRATCH, Warehouse


class TempTables:
    """Temporary files for one computation, removed when the computation ends."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._name = f"{SCRATCH}/{uuid4().hex}"
        self._used = False
        self._claim: int | None = None
        self._claiming = Lock()

    def materialize(self, rows: DataFrame, *, few: bool) -> Rows:
        """Compute rows now and return them.

        Args:
            few: true if the rows are known to fit into memory. Otherwise, up to `INLINE_ROWS` rows
                are fetched into memory, and more rows are written to files.
        """
        if few:
            with translate_refusals("compute rows"):
                return fetch_dataframe(rows)
        return self._write_if_many(rows, thresholds.INLINE_ROWS)

    def gather_tables(self, tables: Iterator[pa.Table]) -> Rows:
        """Gather one or more Arrow tables in memory; in files if they exceed `GATHERED_BYTES`."""
        gathered = list[pa.Table]()
        size = 0
        for table in tables:
            gathered.append(table)
            size += table.nbytes
            if size > thresholds.GATHERED_BYTES:
                self._claim_folder()
                return self._warehouse.spill_rows(chain(gathered, tables), self._name)
        return pa.concat_tables(gathered)

    def materialize_frame(self, rows: DataFrame, *, few: bool = False) -> DataFrame:
        """Compute rows now and return them as a frame of the engine.

        Args:
            few: true if the rows fit into memory. Each query on the frame then sends the rows to
                the engine.
        """
        materialized = self.materialize(rows, few=True) if few else self._write_if_many(rows, 0)
        return to_frame(self._warehouse.spark, materialized)

    def _write_if_many(self, rows: DataFrame, max_rows: int) -> Rows:
        self._claim_folder()
        return self._warehouse.materialize_rows(rows, self._name, max_rows)

    def _claim_folder(self) -> None:
        with self._claiming:
            if not self._used:
                self._claim = claims.claim_folder(self._warehouse.path_of(self._name))
                self._used = True

    def remove_files(self) -> None:
        """Remove the files, if any were written."""
        if self._used:
            try:
                # The removal can fail, because the engine may continue for a moment with earlier
                # queries and write to the folder. An error in the removal must not hide the error
                # that ended the work. The claim is released, so the next sweep (`claims`) or
                # maintenance removes the remaining files.
                with suppress(OSError):
                    self._warehouse.remove_folder(self._name)
            finally:
                claims.release_claim(self._claim)


@contextmanager
def temp_tables(warehouse: Warehouse) -> Iterator[TempTables]:
    """Provide temporary tables for the duration of a `with` block, and then remove their files."""
    tables = TempTables(warehouse)
    try:
        yield tables
    finally:
        tables.remove_files()
