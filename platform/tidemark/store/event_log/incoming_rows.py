"""Prepare incoming rows for the event log: add the columns of their arrival, separate dead letters.

The rows of one commit are in memory if they are few, and a DataFrame otherwise. Both paths give the
same result. Few rows are processed in memory, because a query to the engine would take longer than
the rest of the ingest.
"""

from collections.abc import Callable, Sequence
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.define.source import CORRELATION, Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.dead_letters import DEAD, DEAD_LETTER_COLUMNS, LETTER_FIELDS
from tidemark.store.rows import INSTANT, Rows, column_names, to_frame


class IncomingRows:
    """The rows of one or more arrivals, before they are appended to the event log.

    Args:
        rows: rows with the source's columns, `arrival`, `position` and `read_from`. They also have
            `correlation_id` if the source provides ids, and `dead_letter` if some rows could not
            be decoded.
        arrivals: the arrivals that the rows belong to, in order, without a gap.
    """

    def __init__(self, source: Source, rows: Rows, arrivals: Sequence[Arrival]) -> None:
        self._columns = _log_columns(source)
        self._arrivals = arrivals
        self._fit = sum(a.rows for a in arrivals)
        self._unfit = sum(a.dead_letters for a in arrivals)
        collect = _in_engine if isinstance(rows, DataFrame) else _in_memory
        self._rows = collect(source, rows, arrivals)

    def decoded_events(self) -> Rows | None:
        """Return the decoded rows with the event log's columns; None if there are none.

        A DataFrame is split into a few files, each of which holds a range of arrivals.
        """
        if not self._fit:
            return None
        rows = select_decoded(self._rows) if self._unfit else self._rows
        if not isinstance(rows, DataFrame):
            return _in_order(rows).select(self._columns)
        files = _assign_files(self._arrivals)[-1] + 1
        rows = rows.coalesce(1) if files == 1 else rows.repartitionById(files, "_file")
        rows = rows.sortWithinPartitions("arrival", "position")
        return _fetch_few(_select_columns(rows, self._columns), self._fit)

    def dead_letters(self) -> Rows | None:
        """Return the rows that could not be decoded, as the dead-letter table stores them.

        Return None if all rows were decoded.
        """
        if not self._unfit:
            return None
        rows = _fetch_few(select_dead_letters(self._rows), self._unfit)
        if isinstance(rows, DataFrame):
            return rows.coalesce(1)
        return rows


class ComputedRows:
    """The rows of one or more arrivals, like `IncomingRows`, but for many rows from a query.

    The columns of the arrival, such as the watermark before it, must be known before the rows are
    computed. The engine can then write the rows directly as files of the event log.

    Args:
        source: as for `IncomingRows`.
        rows: as for `IncomingRows`, with `dead_letter`. Each partition of the DataFrame is sorted.
            The query runs twice, for events and for dead letters, and must return the same rows.
        arrivals: as for `IncomingRows`, but their numbers of rows are not used.
        compute: a function that runs the given query, and returns all of its rows.
    """

    def __init__(
        self,
        source: Source,
        rows: DataFrame,
        arrivals: Sequence[Arrival],
        compute: Callable[[DataFrame], Rows],
    ) -> None:
        self.source = source
        rows = _in_engine(source, rows, arrivals)
        self._spark = rows.sparkSession
        self._events = compute(_select_columns(select_decoded(rows), _log_columns(source)))
        self._dead_letters = compute(select_dead_letters(rows).coalesce(1))

    def decoded_events(self) -> Rows | None:
        """Return the decoded rows with the event log's columns; None if there are none."""
        return _unless_empty(self._events)

    def dead_letters(self) -> Rows | None:
        """Return the rows that could not be decoded; None if there are none."""
        return _unless_empty(self._dead_letters)

    def summarize_rows(self) -> DataFrame:
        """Return `arrival`, event time, and `dead_letter` (with its reason only) of all rows."""
        name = self.source.event_time
        events = to_frame(self._spark, self._events)
        dead_letters = to_frame(self._spark, self._dead_letters)
        null = F.lit(None)
        no_letter = null.cast("struct<reason: string>").alias(DEAD)
        no_time = null.cast("timestamp").alias(name)
        event_columns = events.select("arrival", F.col(f"`{name}`"), no_letter)
        letter_columns = dead_letters.select("arrival", no_time, F.struct("reason"))
        return event_columns.unionAll(letter_columns)


@overload
def select_decoded(rows: DataFrame) -> DataFrame: ...
@overload
def select_decoded(rows: pa.Table) -> pa.Table: ...
def select_decoded(rows: Rows) -> Rows:
    """Return the rows that could be decoded. The rows must have a dead-letter column."""
    if isinstance(rows, DataFrame):
        return rows.where(f"{DEAD} IS NULL")
    return rows.filter(rows[DEAD].is_null())


@overload
def select_dead_letters(rows: DataFrame) -> DataFrame: ...
@overload
def select_dead_letters(rows: pa.Table) -> pa.Table: ...
def select_dead_letters(rows: Rows) -> Rows:
    """Return the dead letters among the rows of an arrival, with the columns of their table."""
    row_columns = [name for name in DEAD_LETTER_COLUMNS if name not in LETTER_FIELDS]
    if isinstance(rows, DataFrame):
        return rows.where(f"{DEAD} IS NOT NULL").select(*row_columns, f"{DEAD}.*")
    dead = rows.filter(rows[DEAD].is_valid())
    fields = dead.select([DEAD]).flatten()
    columns = {name: dead[name] for name in row_columns}
    for name in LETTER_FIELDS:
        columns[name] = fields[f"{DEAD}.{name}"]
    return pa.table(columns)


def _fetch_few(rows: Rows, count: int) -> Rows:
    """Return `count` rows, in memory if they are few."""
    is_few = count <= thresholds.SMALL_BATCH_ROWS
    if is_few and isinstance(rows, DataFrame):
        return fetch_dataframe(rows)
    return rows


def _unless_empty(rows: Rows) -> Rows | None:
    if isinstance(rows, DataFrame) or rows.num_rows:
        return rows
    return None


def _log_columns(source: Source) -> list[str]:
    return [*source.columns, *ARRIVAL_COLUMNS]


def _select_columns(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.select([f"`{name}`" for name in names])


def _in_memory(source: Source, rows: pa.Table, arrivals: Sequence[Arrival]) -> pa.Table:
    """Return `rows` with the columns of their arrival."""
    arrival_numbers = rows["arrival"].to_numpy()
    arrival_indexes = pa.array(arrival_numbers - arrivals[0].arrival)

    def arrival_fact(get: Callable[[Arrival], int | None]) -> pa.Array:
        facts = pa.array(map(get, arrivals), pa.int64())
        return facts.take(arrival_indexes).cast(INSTANT)

    identity = rows[CORRELATION] if CORRELATION in rows.column_names else None
    if identity is None or identity.null_count:
        positions = rows["position"].to_pylist()
        generated = list[str]()
        for arrival, position in zip(arrival_numbers, positions, strict=True):
            generated.append(f"{source.name}:{arrival}:{position}")
        generated_ids = pa.array(generated, pa.string())
        identity = generated_ids if identity is None else pc.fill_null(identity, generated_ids)
    facts = {
        "arrived_at": arrival_fact(lambda arrival: arrival.arrived_at),
        "watermark": arrival_fact(lambda arrival: arrival.before),
        CORRELATION: identity,
    }
    logged = rows.drop_columns([name for name in facts if name in rows.column_names])
    for name, column in facts.items():
        logged = logged.append_column(name, column)
    return logged


def _in_engine(source: Source, rows: DataFrame, arrivals: Sequence[Arrival]) -> DataFrame:
    """Return `rows` with the columns of their arrival, and `_file`, the output file's number."""
    fact_rows = list[tuple[int, int, int | None, int]]()
    for arrival, file in zip(arrivals, _assign_files(arrivals), strict=True):
        fact_rows.append((arrival.arrival, arrival.arrived_at, arrival.before, file))
    columns = "arrival BIGINT, _clock BIGINT, _watermark BIGINT, _file INT"
    facts = rows.sparkSession.createDataFrame(fact_rows, columns)
    identity = F.concat_ws(":", F.lit(source.name), "arrival", "position")
    if CORRELATION in column_names(rows):
        identity = F.coalesce(CORRELATION, identity)
    return rows.join(F.broadcast(facts), "arrival").withColumns(
        {
            "arrived_at": F.timestamp_micros("_clock"),
            "watermark": F.timestamp_micros("_watermark"),
            CORRELATION: identity,
        }
    )


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows sorted by arrival and position.

    Rows that are sorted already, such as those of a single partition, are not copied: a copy takes
    as long as writing them.
    """
    arrival = rows["arrival"].to_numpy()
    position = rows["position"].to_numpy()
    has_later_arrival = arrival[1:] > arrival[:-1]
    has_same_arrival = arrival[1:] == arrival[:-1]
    has_later_position = position[1:] > position[:-1]
    if (has_later_arrival | (has_same_arrival & has_later_position)).all():
        return rows
    return rows.sort_by([("arrival", "ascending"), ("position", "ascending")])


def _assign_files(arrivals: Sequence[Arrival]) -> list[int]:
    """Return, for each arrival, the index of the file for its rows. Files have similar sizes."""
    total = sum(arrival.bytes for arrival in arrivals)
    file_count = total // thresholds.LOG_FILE_BYTES + 1
    files = list[int]()
    start = 0
    for arrival in arrivals:
        files.append(start * file_count // max(total, 1))
        start += arrival.bytes
    return files
