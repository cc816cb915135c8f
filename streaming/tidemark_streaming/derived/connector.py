"""The connector of derived sources: each arrival of a base becomes an arrival of the source."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DataError, DefinitionChangedError, summarize
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
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import at_least
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.log_columns import declared_schema
from tidemark.store.event_log.steps import (
    ChangedResults,
    Step,
    TakenArrival,
    effective_watermark,
    raised_watermarks,
)
from tidemark.store.lineage import Lineage, StaleError
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk, Ingestion
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.tables import Tables

_SCOPES = {"where": "the rows `l` and `r`", "deleted": "the columns of the right source"}
"""The names that an expression of a derivation can use, by the argument with the expression."""
_Waiting = tuple[int, int, int, str, Arrival]
"""An arrival to take: its processing time, the index of its base, its number, the name of its base,
and the arrival itself. The first three are the order in which arrivals are taken."""


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

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        last, source = timeline[-1] if timeline else None, self.source
        now = None if last is None else Step.of_position(last.position)
        self._demand_current(now)
        bases = {} if now is None else dict(now.bases)
        taken = {} if now is None else now.taken
        derivation = derivation_fingerprint(source)
        table_ids = {base.name: self._table_id(base) for base in source.bases}
        arrivals = {b.name: self._arrivals(b, taken.get(b.name, 0)) for b in self.source.bases}
        raised = {} if source.idle is None else raised_watermarks(a.position for a in timeline)
        progress = Progress(source)
        for base, arrival in _newest_taken(arrivals, taken):
            reached = effective_watermark(raised.get(base, ()), arrival.arrival, arrival.after)
            progress.resume(base, reached, arrival.arrived_at, arrival.silent_since)
        results, of_asset = self._results(), None if now is None else now.results
        changes = list[StateCommit]()
        if results is not None and now is not None and of_asset is not None:
            changes = results.changes_since(of_asset, progress.reached[now.base])
        ends = {
            base: INFINITY if results is None else results.published_through(found)
            for base, found in arrivals.items()
        }
        waiting: list[_Waiting] = sorted(
            (a.arrived_at, order, a.arrival, base, a)
            for order, (base, found) in enumerate(arrivals.items())
            for a in found
            if taken.get(base, -1) < a.arrival <= ends[base]
        )
        self._demand_known_columns(waiting, bases)
        clock, chunks = None if last is None else last.arrived_at, list[Chunk]()
        for entry in _in_order_of_asset(waiting, changes, results):
            change, raises, size, silent_since = None, None, 0, None
            if isinstance(entry, StateCommit):
                assert results is not None
                assert of_asset is not None
                if progress.watermark == INFINITY:
                    raise results.refuse_change(entry, ended=True)
                base, began = source.bases[0].name, entry.started
                change = ChangedResults(entry.run, entry.mode, of_asset.commit)
                of_asset = replace(of_asset, commit=entry.commit_number, run=entry.run)
                changes = changes[1:]
            else:
                began, _, number, base, arrival = entry
                size = arrival.bytes
                bases[base] = TakenArrival(
                    number, arrival.arrival_id, table_ids[base], arrival.schema_version
                )
                raises = progress.take(base, arrival.after, began, arrival.silent_since)
                if arrival.silent_since is not None:
                    silent_since = progress.silent_since
                if results is not None:
                    of_asset = results.results_after(arrival.after, changes)
            step = Step(base, dict(bases), derivation, of_asset, raises, change)
            clock = began if clock is None else max(clock, began)
            mark = progress.watermark
            chunks.append(
                Chunk(
                    step.to_position(),
                    clock,
                    bytes=size,
                    watermark=mark,
                    end=mark == INFINITY,
                    silent_since=silent_since,
                )
            )
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        warehouse = Warehouse(spark, self.location, self.database, registered=False)
        for base in self.source.bases:
            # A base without arrivals may not have tables yet.
            if not warehouse.exists(base.log_table):
                Log(warehouse, base).create()
        steps = read_steps(warehouse, self.source, [chunk.position for chunk in chunks])
        self._read[:] = [steps]
        if not steps.can_have_rows():
            return self._no_rows(warehouse)
        rows = steps.compute_rows()
        steps.prepare_following()
        names = ["position", "read_from", "correlation_id", *self.source.columns]
        if is_paired(self.source):
            names.append(DEAD)
        columns = [F.col(f"`{name}`") for name in names]
        return rows.select(F.col(STEP).cast("bigint").alias(CHUNK), *columns)

    def rows_to_read(self) -> int:
        return sum(steps.rows_to_read() for steps in self._read)

    def explain(self, error: PySparkException) -> DataError | None:
        expressions = self.source.derivation.expressions
        if not expressions or not is_expression_invalid(error):
            return None
        given = " or ".join(
            f"{name}={text!r}, which is SQL over {_SCOPES[name]}"
            for name, text in expressions.items()
        )
        return DataError(
            f"The rows of '{self.source.name}' can't be computed: {summarize(error)}. Correct "
            f"{given}. Nothing was ingested."
        )

    def _no_rows(self, warehouse: Warehouse) -> pa.Table:
        """Return an empty table with the columns that `read` returns."""
        log = self.source.log_table
        # The engine reads the declared types, so it is asked only before the first arrival.
        exists = warehouse.exists(log)
        own = warehouse.schema(log) if exists else declared_schema(warehouse, self.source)
        facts = {CHUNK: pa.int64(), "position": pa.int64(), "read_from": pa.string()}
        columns = {name: own.field(name).type for name in self.source.columns}
        return pa.schema({**columns, **facts}).empty_table()

    @cached_property
    def _tables(self) -> Tables:
        return Tables(f"{self.location}/{self.database}")

    def _results(self) -> AssetResults | None:
        """Return the results of the chain's asset; None if the source is not a chain."""
        derivation = self.source.derivation
        if not isinstance(derivation, Chain):
            return None
        return AssetResults(self.source, derivation, self._tables)

    def _arrivals(self, base: Source, first: int) -> list[Arrival]:
        """Return the arrivals of a base from the number `first` on."""
        rows = self._tables.read(base.timeline_table, bounds=[at_least("arrival", first)])
        return [] if rows is None else read_arrivals(rows)

    def _table_id(self, base: Source) -> str:
        """Return the identity of a base's timeline; empty if the base has no tables yet."""
        return self._tables.id(base.timeline_table) or ""

    def _demand_current(self, step: Step | None) -> None:
        """Raise `StaleError` if the source can't continue from its newest step.

        A source without steps can't begin if it reads a stale node.
        """
        if (stale := Lineage(self._tables).of_source(self.source, step)) is not None:
            raise StaleError(stale)

    def _demand_known_columns(
        self, waiting: Sequence[_Waiting], bases: Mapping[str, TakenArrival]
    ) -> None:
        """Refuse arrivals with columns that this process's definition of a base does not have.

        Otherwise, the columns would be null in the derived rows, which are not computed again.

        Args:
            bases: the newest arrivals that have been taken, by the name of the base.
        """
        declared = {base.name: base for base in self.source.bases}
        versions = {(base, arrival.schema_version) for *_, base, arrival in waiting}
        for name, version in sorted(versions):
            if name in bases and bases[name].schema_version == version:
                continue
            existing = self._tables.types(declared[name].log_table)
            added = sorted(existing.keys() - {*declared[name].columns, *ARRIVAL_COLUMNS})
            if added:
                raise DefinitionChangedError(
                    f"'{name}' has the column '{added[0]}', which the definition in this process "
                    f"lacks. So '{self.source.name}' would lose it. Start this process again to "
                    "use the new definition. Nothing was ingested."
                )


def _newest_taken(
    arrivals: Mapping[str, Sequence[Arrival]], taken: Mapping[str, int]
) -> Iterator[tuple[str, Arrival]]:
    """Yield each base with its newest arrival that earlier steps have taken."""
    for base, own in arrivals.items():
        for arrival in own:
            if arrival.arrival == taken.get(base):
                yield base, arrival


def _in_order_of_asset(
    waiting: Sequence[_Waiting], changes: Sequence[StateCommit], results: AssetResults | None
) -> Iterator[_Waiting | StateCommit]:
    """Merge arrivals with the commits that changed the results of a chain's asset.

    Yield each commit directly after the arrivals that the asset had processed before it.

    Args:
        waiting: the arrivals, in the order in which they are taken.
        changes: the commits, in order; none if the source is not a chain.
        results: the results of the chain's asset; None if the source is not a chain.
    """
    ahead = deque(changes)
    for each in waiting:
        _, _, number, _, _ = each
        while results is not None and ahead and results.arrival_of(ahead[0]) < number:
            yield ahead.popleft()
        yield each
    yield from ahead
