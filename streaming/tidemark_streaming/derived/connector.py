"""The connector of derived sources: each arrival of a base becomes an arrival of the source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionChangedError, summarize_error
from tidemark.base.instants import INFINITY
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.rows import StepsToCompute, read_steps
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import is_paired
from tidemark.define.derived.progress import Progress
from tidemark.define.identity.derivation import derivation_fingerprint
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.engine.failures import is_expression_invalid
from tidemark.store.commits.conditions import at_least
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.log_columns import declared_schema
from tidemark.store.event_log.steps import (
    Step,
    TakenArrival,
    effective_watermark,
    raised_watermarks,
)
from tidemark.store.lineage import Lineage, StaleError
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk, Ingestion
from tidemark_streaming.derived.step_chunks import StepChunks, WaitingArrival
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.tables import Tables

_SCOPES = {"where": "the rows `l` and `r`", "deleted": "the columns of the right source"}
"""The names that an expression of a derivation can use, by the argument with the expression."""


def ingestion_of(source: DerivedSource) -> Ingestion:
    """Return the `Ingestion` of a derived source.

    Users define none for it, because its connector is always a `DerivedConnector`.
    """
    return Ingestion(source=source, connector=lambda _: DerivedConnector(source))


@dataclass(frozen=True)
class DerivedConnector:
    """A connector that computes a derived source from the event logs of its bases.

    Each poll takes all new arrivals of the bases. They are ordered by processing time, then by the
    order of the bases in the definition, then by number. The timeline records this order. A chain
    takes only arrivals that its asset has published.

    Args:
        source: the derived source.
        location, database: the warehouse with the event logs, as for `Warehouse`; `in_warehouse`
            sets both.
    """

    source: DerivedSource
    location: str = ""
    database: str = ""
    _read: list[StepsToCompute] = field(default_factory=list, init=False, repr=False, compare=False)

    def in_warehouse(self, location: str, database: str) -> "DerivedConnector":
        return replace(self, location=location, database=database)

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        source = self.source
        newest_step: Step | None = None
        clock: int | None = None
        if timeline:
            newest_step = Step.of_position(timeline[-1].position)
            clock = timeline[-1].arrived_at
        self._demand_current(newest_step)
        bases: dict[str, TakenArrival] = {}
        if newest_step is not None:
            bases = dict(newest_step.bases)
        taken = {base: arrival.number for base, arrival in bases.items()}
        table_ids = {base.name: self._table_id(base) for base in source.base_sources}
        arrivals = dict[str, list[Arrival]]()
        for base in source.base_sources:
            arrivals[base.name] = self._read_arrivals(base, taken.get(base.name, 0))
        steps = StepChunks(
            derivation=derivation_fingerprint(source),
            table_ids=table_ids,
            progress=self._resume_progress(timeline, arrivals, taken),
            bases=bases,
            clock=clock,
            results=self._open_results(),
        )
        if newest_step is not None:
            steps.taken_results = newest_step.results
            if steps.results is not None and newest_step.results is not None:
                reached = steps.progress.reached[newest_step.base]
                steps.changes = steps.results.changes_since(newest_step.results, reached)
        waiting = _select_waiting(arrivals, taken, steps.results)
        self._demand_known_columns(waiting, bases)
        steps.add_all(waiting, changed_base=source.base_sources[0].name)
        return steps.chunks

    def _resume_progress(
        self,
        timeline: Sequence[Arrival],
        arrivals: Mapping[str, Sequence[Arrival]],
        taken_numbers: Mapping[str, int],
    ) -> Progress:
        """Return the progress of the bases as of the newest step.

        Args:
            timeline: the arrivals of this source.
            arrivals: the arrivals of each base, from the newest one that has been taken.
            taken_numbers: the number of the newest arrival of each base that has been taken.
        """
        raised: Mapping[str, Sequence[tuple[int, int]]] = {}
        if self.source.idle is not None:
            raised = raised_watermarks(arrival.position for arrival in timeline)
        progress = Progress(self.source)
        for base, arrival in _newest_taken(arrivals, taken_numbers):
            reached = effective_watermark(raised.get(base, ()), arrival.arrival, arrival.after)
            progress.resume_after(base, reached, arrival.arrived_at, arrival.silent_since)
        return progress

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        warehouse = Warehouse(spark, self.location, self.database, registered=False)
        for base in self.source.base_sources:
            # A base without arrivals may not have tables yet.
            if not warehouse.has_table(base.log_table):
                Log(warehouse, base).ensure_tables()
        steps = read_steps(warehouse, self.source, [chunk.position for chunk in chunks])
        self._read[:] = [steps]
        if not steps.can_have_rows():
            return self._no_rows(warehouse)
        rows = steps.compute_rows()
        steps.store_versions()
        names = ["position", "read_from", "correlation_id", *self.source.columns]
        if is_paired(self.source):
            names.append(DEAD)
        columns = [F.col(f"`{name}`") for name in names]
        return rows.select(F.col(STEP).cast("bigint").alias(CHUNK), *columns)

    def rows_to_read(self) -> int:
        return sum(steps.estimate_rows_to_read() for steps in self._read)

    def explain_error(self, error: PySparkException) -> DataError | None:
        expressions = self.source.derivation.sql_expressions
        if not expressions or not is_expression_invalid(error):
            return None
        arguments = list[str]()
        for name, text in expressions.items():
            arguments.append(f"{name}={text!r}, which is SQL over {_SCOPES[name]}")
        return DataError(
            f"The rows of '{self.source.name}' can't be computed: {summarize_error(error)}. "
            "Correct "
            f"{' or '.join(arguments)}. Nothing was ingested."
        )

    def _no_rows(self, warehouse: Warehouse) -> pa.Table:
        """Return an empty table with the columns that `read` returns."""
        log = self.source.log_table
        # The engine reads the declared types, so it is asked only before the first arrival.
        if warehouse.has_table(log):
            schema = warehouse.read_schema(log)
        else:
            schema = declared_schema(warehouse, self.source)
        facts = {CHUNK: pa.int64(), "position": pa.int64(), "read_from": pa.string()}
        columns = {name: schema.field(name).type for name in self.source.columns}
        return pa.schema({**columns, **facts}).empty_table()

    @cached_property
    def _tables(self) -> Tables:
        return Tables(f"{self.location}/{self.database}")

    def _open_results(self) -> AssetResults | None:
        """Return the results of the chain's asset; None if the source is not a chain."""
        derivation = self.source.derivation
        if not isinstance(derivation, Chain):
            return None
        return AssetResults(self.source, derivation, self._tables)

    def _read_arrivals(self, base: Source, first_number: int) -> list[Arrival]:
        """Return the arrivals of a base from the number `first_number` on."""
        rows = self._tables.read(base.timeline_table, bounds=[at_least("arrival", first_number)])
        if rows is None:
            return []
        return read_arrivals(rows)

    def _table_id(self, base: Source) -> str:
        """Return the identity of a base's timeline; empty if the base has no tables yet."""
        return self._tables.table_id(base.timeline_table) or ""

    def _demand_current(self, step: Step | None) -> None:
        """Raise `StaleError` if the source can't continue from its newest step.

        A source without steps can't begin if it reads a stale node.
        """
        if (stale := Lineage(self._tables).of_source(self.source, step)) is not None:
            raise StaleError(stale)

    def _demand_known_columns(
        self, waiting: Sequence[WaitingArrival], bases: Mapping[str, TakenArrival]
    ) -> None:
        """Refuse arrivals with columns that this process's definition of a base does not have.

        Otherwise, the columns would be null in the derived rows, which are not computed again.

        Args:
            bases: the newest arrivals that have been taken, by the name of the base.
        """
        declared = {base.name: base for base in self.source.base_sources}
        versions = {(w.base, w.arrival.schema_version) for w in waiting}
        for name, version in sorted(versions):
            if name in bases and bases[name].schema_version == version:
                continue
            existing = self._tables.column_types(declared[name].log_table)
            added = sorted(existing.keys() - {*declared[name].columns, *ARRIVAL_COLUMNS})
            if added:
                raise DefinitionChangedError(
                    f"'{name}' has the column '{added[0]}', which the definition in this process "
                    f"lacks. So '{self.source.name}' would lose it. Start this process again to "
                    "use the new definition. Nothing was ingested."
                )


def _newest_taken(
    arrivals: Mapping[str, Sequence[Arrival]], taken_numbers: Mapping[str, int]
) -> Iterator[tuple[str, Arrival]]:
    """Yield each base with its newest arrival that earlier steps have taken."""
    for base, base_arrivals in arrivals.items():
        for arrival in base_arrivals:
            if arrival.arrival == taken_numbers.get(base):
                yield base, arrival


def _select_waiting(
    arrivals: Mapping[str, Sequence[Arrival]],
    taken_numbers: Mapping[str, int],
    results: AssetResults | None,
) -> list[WaitingArrival]:
    """Return the arrivals to take, in order. A chain takes those that its asset has published."""
    waiting: list[WaitingArrival] = []
    for base_index, (base, base_arrivals) in enumerate(arrivals.items()):
        newest = INFINITY
        if results is not None:
            newest = results.published_through(base_arrivals)
        for arrival in base_arrivals:
            number = arrival.arrival
            if taken_numbers.get(base, -1) < number <= newest:
                waiting.append(
                    WaitingArrival(arrival.arrived_at, base_index, number, base, arrival)
                )
    return sorted(waiting)
