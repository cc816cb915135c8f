"""Parity of derived sources: compare the event log with a recomputation from the bases' event logs.

The timeline records the steps of a derived source, so the recomputation uses the recorded steps.
Everything else is recomputed, in one pass instead of in increments. Positions of rows are not
compared: after an erasure, the remaining rows of an arrival keep their positions, and new rows get
later positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.compute.compare import exact_json
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.rows import read_steps
from tidemark.compute.differences import cancel_rows
from tidemark.compute.materialize import temp_tables
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import is_paired
from tidemark.define.helper_columns import name_helper
from tidemark.engine.queries.planning import Planning
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.event_log.log import Log
from tidemark.store.rows import to_dicts
from tidemark.store.warehouse import Warehouse

MISSING = "missing"
EXTRA = "extra"
_SIGN = name_helper("sign")
_COMPARED = ["arrival", "row", "reason"]


@dataclass(frozen=True)
class _DerivedParity:
    """The result of `check_derived_parity`.

    Args:
        as_of: the newest arrival of the derived source, through which rows are compared.
        rows: the number of recorded rows, including the dead letters of a join.
        missing: the number of recomputed rows that are not recorded.
        extra: the number of recorded rows that are not recomputed.
        differences: the first missing rows, then the first extra rows, each with its kind and its
            arrival.
    """

    source: str
    as_of: int
    rows: int
    missing: int
    extra: int
    differences: list[dict[str, Any]]

    @property
    def is_equal(self) -> bool:
        return self.missing == self.extra == 0


def check_derived_parity(
    warehouse: Warehouse, source: DerivedSource, *, max_listed: int = 1000
) -> _DerivedParity:
    """Compare the event log of a derived source with a recomputation from its bases.

    The dead letters of a join, which are the rows of its bases that take no part in it, are
    compared, too.

    Args:
        max_listed: the maximum number of differences to list.

    Raises:
        DataError: the source has no arrivals yet.
    """
    log = Log(warehouse, source)
    timeline = log.read_timeline() if warehouse.has_table(source.timeline_table) else []
    if not timeline:
        raise DataError(
            f"Nothing has arrived for '{source.name}' yet: run `tidemark ingest {source.name}`."
        )
    few = all(Log(warehouse, base).has_few_events() for base in source.base_sources)
    with temp_tables(warehouse) as scratch, warehouse.use_planning(Planning.for_size(few)):
        last_arrival = timeline[-1].arrival
        recorded_events = _to_comparable_events(log.read_events(-1, last_arrival), source)
        recorded_letters = _to_comparable_letters(warehouse.read_frame(source.dead_letters_table))
        recorded = recorded_events.unionByName(recorded_letters)
        computed = _recompute(warehouse, source, timeline)
        computed_rows = computed.withColumn(_SIGN, F.lit(1))
        recorded_rows = recorded.withColumn(_SIGN, F.lit(-1))
        net_rows = cancel_rows(computed_rows.unionByName(recorded_rows), _COMPARED, _SIGN)
        differing = scratch.materialize_frame(_repeat_rows(net_rows), few=few)
        missing = differing.where(F.col(_SIGN) > 0)
        extra = differing.where(F.col(_SIGN) < 0)
        differences = _list_first(missing, MISSING, max_listed)
        differences += _list_first(extra, EXTRA, max_listed)
        return _DerivedParity(
            source=source.name,
            as_of=last_arrival,
            rows=recorded.count(),
            missing=missing.count(),
            extra=extra.count(),
            differences=differences[:max_listed],
        )


def _recompute(
    warehouse: Warehouse, source: DerivedSource, timeline: Sequence[Arrival]
) -> DataFrame:
    """Return the rows of all recorded steps, computed again, as the columns `_COMPARED`."""
    positions = [arrival.position for arrival in timeline]
    computed = read_steps(warehouse, source, positions).compute_rows()
    computed = computed.withColumnRenamed(STEP, "arrival")
    if not is_paired(source):
        return _to_comparable_events(computed, source)
    events = _to_comparable_events(computed.where(f"{DEAD} IS NULL"), source)
    dead_letters = computed.where(f"{DEAD} IS NOT NULL").select("*", f"{DEAD}.*")
    return events.unionByName(_to_comparable_letters(dead_letters))


def _to_comparable_events(rows: DataFrame, source: DerivedSource) -> DataFrame:
    content = exact_json([F.col(f"`{name}`") for name in source.columns])
    return _to_comparable(rows, content, F.lit(None).cast("string"))


def _to_comparable_letters(rows: DataFrame) -> DataFrame:
    return _to_comparable(rows, F.col("bytes").cast("string"), F.col("reason"))


def _to_comparable(rows: DataFrame, content: Column, reason: Column) -> DataFrame:
    """Return rows as the columns `_COMPARED`, which the engine can compare.

    Args:
        content: an expression for the whole row as text, because the engine can't compare all
            types.
        reason: an expression for the reason of a dead letter; null for an event.
    """
    arrival = F.col("arrival").cast("bigint")
    return rows.select(arrival.alias("arrival"), content.alias("row"), reason.alias("reason"))


def _repeat_rows(rows: DataFrame) -> DataFrame:
    """Return each row as often as one side has it more often than the other."""
    times = F.explode(F.array_repeat(F.lit(True), F.abs(_SIGN).cast("int")))
    return rows.withColumn(name_helper("repeated"), times).select(*_COMPARED, _SIGN)


def _list_first(rows: DataFrame, kind: str, max_listed: int) -> list[dict[str, Any]]:
    listed = rows.drop(_SIGN).orderBy("arrival", "row").limit(max_listed).toArrow()
    return [{"kind": kind, **row} for row in to_dicts(listed)]
