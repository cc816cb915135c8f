"""Event logs in memory, for many scenarios of derived sources.

The steps, the watermarks and the queries are those of the product: the connector of derived
sources, `to_arrivals` and `read_steps`. Only the tables are replaced, because commits take
most of the time. `plan` needs no engine.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from random import Random
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.model.derived_oracle import derive, source_logs
from helpers.model.oracle import MICROSECOND, Row, plain
from tidemark.base.instants import EARLIEST, LATEST
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.rows import read_steps
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import fetch_dataframe, to_dataframe
from tidemark.store.commits.conditions import Condition
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.event_log.steps import Step, TakenArrival
from tidemark.store.rows import INSTANT
from tidemark.store.rows import compute as pc
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Chunk
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.arrival_watermarks import to_arrivals
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.scenario.read.parse import Scenario

_TYPES = {
    "timestamp": INSTANT,
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
}
_ADDED = {name: _TYPES[kind.lower()] for name, kind in ARRIVAL_COLUMNS.items()}


@dataclass(frozen=True)
class MemoryConnector(DerivedConnector):
    """The connector of a derived source over given timelines instead of tables."""

    timelines: Mapping[str, Sequence[Arrival]] | None = None

    def _arrivals(self, base: Source, first: int) -> list[Arrival]:
        return [a for a in (self.timelines or {})[base.name] if a.arrival >= first]

    def _table_id(self, base: Source) -> str:
        return base.name

    def _demand_current(self, step: Step | None) -> None:
        """Timelines in memory keep their history."""

    def _demand_known_columns(
        self, waiting: Sequence[object], bases: Mapping[str, TakenArrival]
    ) -> None:
        """The bases keep their columns."""

    def _results(self) -> None:
        # The asset of a chain has published everything.
        return None


class MemoryWarehouse:
    """The tables of event logs, as `Log` reads them."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._spark = spark
        self.tables = dict[str, pa.Table]()

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def read_frame(self, table: str, *bounds: Condition) -> DataFrame:
        return to_dataframe(self.spark, self.load_rows(table, *bounds))

    def load_rows(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        rows = reduce(lambda rows, b: rows.filter(b.to_expression()), bounds, self.tables[table])
        return rows if columns is None else rows.select(columns)

    def read_schema(self, table: str) -> pa.Schema:
        return self.tables[table].schema

    def has_table(self, table: str) -> bool:
        return table in self.tables

    def max_value(self, table: str, column: str) -> int | None:
        return pc.max(self.tables[table][column]).as_py()

    def max_row_count(self, table: str) -> int:
        return self.tables[table].num_rows

    def ensure_table(self, *_: object) -> None:
        """Do nothing: `replace_rows` creates the table."""

    def replace_rows(self, rows: DataFrame, table: str, *_: object) -> None:
        self.tables[table] = fetch_dataframe(rows)

    def find_head(self, _: str) -> None:
        """Return nothing: no event is ever erased from these event logs."""

    def pin_version(self, _: str) -> AbstractContextManager[None]:
        return nullcontext()

    def use_planning(self, _: Planning) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class Commit:
    """Consecutive arrivals of a derived source that are computed together."""

    first: int
    chunks: list[Chunk]


class MemoryLogs:
    """The event logs of a scenario.

    Args:
        spark: None if only steps and watermarks are computed.
        content: the scenario as the oracle takes it.
        chance: chooses when a derived source polls its bases, and the commits.
    """

    def __init__(
        self, spark: SparkSession | None, scenario: Scenario, content: Row, chance: Random
    ) -> None:
        self.scenario = scenario
        self.content = content
        self.oracle = source_logs(content)
        self.warehouse = MemoryWarehouse(spark)
        self.timelines = dict[str, list[Arrival]]()
        self.letters = dict[str, list[Row]]()
        self._chance = chance
        for source in scenario.sources.values():
            self._append_scenario(source)

    def compute(self) -> None:
        """Compute all derived sources, commit by commit."""
        for source in self.scenario.derived.values():
            commits = self.plan(source)
            # The effective watermarks of its bases follow from all its steps.
            self._store_timeline(source)
            if isinstance(source.derivation, Chain):
                self._store_windows(source.derivation.asset, self.oracle[source.name].windows)
            rows = list[Row]()
            for commit in commits:
                rows += fetch_dataframe(self.rows_of(source, commit)).to_pylist()
                positions = [chunk.position for chunk in commit.chunks]
                read_steps(cast(Warehouse, self.warehouse), source, positions).store_versions()
            self.append(source, rows)

    def plan(self, source: DerivedSource) -> list[Commit]:
        """Return the commits of a derived source, as its bases progress by chance.

        Its timeline then has the steps and watermarks, but nothing about its rows. The oracle
        follows the same steps.
        """
        bases = [self.timelines[base.name] for base in source.base_sources]
        given, timeline, commits = [0] * len(bases), list[Arrival](), list[Commit]()
        # With the greatest progress, all arrivals are taken at once.
        greatest = self._chance.choice([2 + max(map(len, bases)) // 4, 1_000])
        while given != [len(base) for base in bases]:
            side = self._chance.randrange(len(bases))
            given[side] = min(given[side] + self._chance.randint(1, greatest), len(bases[side]))
            if given != [len(base) for base in bases] and self._chance.random() < 0.7:
                continue
            here = {
                base.name: rows[:n]
                for base, rows, n in zip(source.base_sources, bases, given, strict=True)
            }
            chunks = MemoryConnector(source, timelines=here).list_pending(timeline)
            while chunks:
                size = self._chance.choice([1, 1 + len(chunks) // 2, len(chunks)])
                commits.append(Commit(len(timeline), chunks[:size]))
                last = timeline[-1] if timeline else None
                timeline += to_arrivals(source, last, chunks[:size], {}, "{}", 1)
                chunks = chunks[size:]
        self.timelines[source.name] = timeline
        definition = self.content["derived"][source.name]
        self.oracle[source.name] = derive(definition, self.oracle, self.steps(source))
        chunks = [chunk for commit in commits for chunk in commit.chunks]
        self._fold_again(source, chunks)
        return commits

    def _fold_again(self, source: DerivedSource, chunks: Sequence[Chunk]) -> None:
        """Fold the chunks of a derived source with the numbers of its rows, which the oracle knows.

        A step with rows is not a heartbeat for the sources that are derived from this one.
        """
        rows = [len(arrival.rows) for arrival in self.oracle[source.name].arrivals]
        facts = {n: ChunkSummary(rows=count) for n, count in enumerate(rows)}
        self.timelines[source.name] = to_arrivals(source, None, chunks, facts, "{}", 1)

    def steps(self, source: DerivedSource) -> list[tuple[int, int]]:
        """Return the steps as the oracle takes them."""
        names = [base.name for base in source.base_sources]
        found = [Step.of_position(a.position) for a in self.timelines[source.name]]
        return [(names.index(step.base), step.taken_arrival) for step in found]

    def rows_of(self, source: DerivedSource, commit: Commit) -> DataFrame:
        """Return the rows of a commit, with the source's columns as JSON."""
        warehouse = cast(Warehouse, self.warehouse)
        rows = read_steps(
            warehouse, source, [chunk.position for chunk in commit.chunks]
        ).compute_rows()
        micros = [
            (F.unix_micros(f"`{name}`") if kind == "timestamp" else F.col(f"`{name}`")).alias(name)
            for name, kind in source.columns.items()
        ]
        letter = F.col(f"{DEAD}.reason") if DEAD in rows.columns else F.lit(None)
        return rows.select(
            (F.col(STEP) + commit.first).cast("bigint").alias("arrival"),
            F.col("position").cast("bigint").alias("position"),
            "read_from",
            "correlation_id",
            letter.cast("string").alias("reason"),
            F.to_json(F.struct(*micros), {"ignoreNullFields": "false"}).alias("row"),
        )

    def append(self, source: DerivedSource, rows: Sequence[Row]) -> None:
        """Store the computed rows of a derived source, and what its timeline says about them."""
        given = [{**row, **json.loads(row["row"])} for row in rows]
        self.letters[source.name] = [row for row in given if row["reason"] is not None]
        self._store(source, [row for row in given if row["reason"] is None])
        after = self.timelines[source.name]
        facts = {a.arrival: self._facts(source, a.arrival) for a in after}
        self.timelines[source.name] = [
            replace(
                a,
                rows=facts[a.arrival].rows,
                min_event_time=facts[a.arrival].min_event_time,
                max_event_time=facts[a.arrival].max_event_time,
            )
            for a in after
        ]
        self._store_timeline(source)

    def result(self) -> Row:
        """Return the events and the rows without part of the derived sources."""
        return {
            "watermark": None,
            "derived": {name: self._events(s) for name, s in self.scenario.derived.items()},
            "unjoined": {name: self._unjoined(s) for name, s in self.scenario.derived.items()},
        }

    def _append_scenario(self, source: Source) -> None:
        arrivals = self.scenario.arrivals_of(source)
        rows = [
            dict(zip(source.columns, row, strict=True))
            | {"arrival": number, "position": position, "read_from": "", "correlation_id": ""}
            for number, arrival in enumerate(arrivals)
            for position, row in enumerate(arrival.rows)
        ]
        chunks = [
            Chunk("{}", a.clock, watermark=a.watermark, end=a.ends, silent_since=a.silent_since)
            for a in arrivals
        ]
        self._store(source, rows)
        facts = {n: self._facts(source, n) for n in range(len(chunks))}
        self.timelines[source.name] = to_arrivals(source, None, chunks, facts, "{}", 1)
        # The watermark before an arrival is known only now.
        self._store(source, rows)
        self._store_timeline(source)

    def _facts(self, source: Source, arrival: int) -> ChunkSummary:
        rows = self.warehouse.tables[source.log_table]
        mine = rows.filter(pc.equal(rows["arrival"], arrival))
        times = mine[source.event_time].cast(pa.int64()).to_pylist()
        known = [time for time in times if time is not None and EARLIEST <= time < LATEST]
        observed = str(max(known)) if known and source.watermark.by_newest else None
        return ChunkSummary(
            rows=mine.num_rows,
            min_event_time=min(known, default=None),
            max_event_time=max(known, default=None),
            observed=observed,
        )

    def _store(self, source: Source, rows: Sequence[Row]) -> None:
        timeline = self.timelines.get(source.name)
        if timeline is not None:
            rows = [
                {
                    **row,
                    "arrived_at": timeline[row["arrival"]].arrived_at,
                    "watermark": timeline[row["arrival"]].before,
                }
                for row in rows
            ]
        types = {n: _TYPES[kind.lower()] for n, kind in source.columns.items()} | _ADDED
        columns = {
            name: pa.array(
                [row.get(name) for row in rows], pa.int64() if kind == INSTANT else kind
            ).cast(kind)
            for name, kind in types.items()
        }
        self.warehouse.tables[source.log_table] = pa.table(columns)

    def _store_windows(self, asset: Definition, windows: Sequence[Row]) -> None:
        """Store the published windows of a chain's asset, which are the oracle's."""
        columns = {**asset.source.columns, "n": "bigint", "total": "bigint", "last_id": "string"}
        types = {n: _TYPES[columns[n].lower()] for n in (*asset.keys, *asset.aggregates)}
        types |= {"window_start": INSTANT, "window_end": INSTANT, "final": pa.bool_()}
        rows = [
            {
                **row,
                "window_start": row["window_first"],
                "window_end": row["window_last"] + MICROSECOND,
            }
            for row in windows
        ]
        self.warehouse.tables[asset.published_table] = pa.table(
            {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        )

    def _store_timeline(self, source: Source) -> None:
        found = self.timelines[source.name]
        table = timeline_rows(found) if found else timeline_rows([_ANY]).slice(0, 0)
        self.warehouse.tables[source.timeline_table] = table

    def _events(self, source: Source) -> list[Row]:
        rows = self.warehouse.tables[source.log_table].to_pylist()
        names = ("arrival", *source.columns, "watermark")
        rows.sort(key=lambda row: (row["arrival"], row["position"]))
        return [plain({name: row[name] for name in names}) for row in rows]

    def _unjoined(self, source: DerivedSource) -> list[Row]:
        found = list[Row]()
        for letter in self.letters[source.name]:
            base, _, place = letter["read_from"].partition(" ")
            own = next(b for b in source.base_sources if b.name == base)
            rows = self.warehouse.tables[own.log_table].to_pylist()
            row = next(r for r in rows if f"{r['arrival']}#{r['position']}" == place)
            reason = letter["reason"].removesuffix(f" in {base}")
            facts = {"source": base, "reason": reason, "arrival": letter["arrival"]}
            names = (*own.columns, "watermark")
            found.append(plain({name: row[name] for name in names} | facts))
        return found


_ANY = Arrival(0, 0, None, None, 0, None, None, 0, "")
