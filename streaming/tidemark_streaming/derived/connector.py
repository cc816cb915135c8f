"""Connector of derived sources: each arrival of a base is an arrival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.instants import INFINITY
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.rows import compute_rows
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.store.commits.conditions import at_least
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step, Steps
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.snapshot.tables import Tables


@dataclass(frozen=True)
class DerivedConnector:
    """A connector that computes a derived source from the event logs of its bases.

    Each poll takes all arrivals of the bases that are there, in the order of their processing time,
    then of the bases in the definition, then of their numbers. The timeline records this order.

    Args:
        source: the derived source.
        location, database: the warehouse with the event logs, as of a `Warehouse`.
    """

    source: DerivedSource
    location: str
    database: str

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        last = timeline[-1] if timeline else None
        if last is not None and last.ends:
            return []
        tables = Tables(f"{self.location}/{self.database}")
        now = None if last is None else Step.of_position(last.position)
        taken = {} if now is None else dict(now.taken)
        ids = self._ids(tables, {} if now is None else now.ids)
        arrivals = self._arrivals(tables, taken)
        reached = {
            base: next((a.after for a in found if a.arrival == taken.get(base)), None)
            for base, found in arrivals.items()
        }
        waiting = sorted(
            (a.arrived_at, order, a.arrival, base, a)
            for order, (base, found) in enumerate(arrivals.items())
            for a in found
            if a.arrival > taken.get(base, -1)
        )
        clock, chunks = None if last is None else last.arrived_at, list[Chunk]()
        for arrived_at, _, number, base, arrival in waiting:
            clock = arrived_at if clock is None else max(clock, arrived_at)
            taken, reached = {**taken, base: number}, {**reached, base: arrival.after}
            mark = self.source.watermark_of(list(reached.values()))
            step = Step(base, taken, {b: ids[b] for b in taken})
            chunks.append(
                Chunk(
                    step.to_position(),
                    clock,
                    bytes=arrival.bytes,
                    watermark=mark,
                    end=mark == INFINITY,
                )
            )
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        warehouse = Warehouse(spark, self.location, self.database, registered=False)
        steps = [Step.of_position(chunk.position) for chunk in chunks]
        tables = Tables(f"{self.location}/{self.database}")
        self._ids(tables, steps[-1].ids)
        found = Steps(
            [base.name for base in self.source.bases],
            steps,
            self._arrivals(tables, steps[0].before),
        )
        logs = [Log(warehouse, base) for base in self.source.bases]
        for log in logs:
            # A base of which nothing has arrived yet may have no tables.
            if not warehouse.exists(log.source.log_table):
                log.create()
        rows = compute_rows(self.source, logs, found)
        others = [F.col(f"`{name}`") for name in rows.columns if name != STEP]
        return rows.select(F.col(STEP).cast("bigint").alias(CHUNK), *others)

    def explain(self, error: PySparkException) -> DataError | None:
        return None

    def _ids(self, tables: Tables, known: Mapping[str, str]) -> dict[str, str]:
        """Return the id of each base's timeline.

        Raises:
            DataError: a base was dropped and created again since its arrivals were taken.
        """
        found = dict[str, str]()
        for base in self.source.bases:
            identity = tables.id(base.timeline_table)
            if base.name in known and known[base.name] != identity:
                raise DataError(
                    f"Source '{self.source.name}' is computed from '{base.name}', which was "
                    "dropped or created again since then. Its new arrivals can't continue the old "
                    f"ones: drop '{self.source.name}' too (`tidemark drop {self.source.name}`) and "
                    "ingest it again."
                )
            if identity is not None:
                found[base.name] = identity
        return found

    def _arrivals(self, tables: Tables, taken: Mapping[str, int]) -> dict[str, list[Arrival]]:
        """Return the arrivals of each base, from the newest one that has been taken."""
        found = dict[str, list[Arrival]]()
        for base in self.source.bases:
            first = max(taken.get(base.name, 0), 0)
            rows = tables.read(
                base.timeline_table, bounds=[at_least("arrival", first, instants=False)]
            )
            found[base.name] = [] if rows is None else read_arrivals(rows)
        return found
