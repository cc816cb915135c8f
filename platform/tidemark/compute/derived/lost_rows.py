"""Find how a derived source changes after events of its bases were erased.

Derived rows that were computed from an erased event are *lost*. A partner of the event has the same
keys (`partner_keys`), and may now have no partner, or another one. All derived rows with these keys
are therefore computed again, with the steps that the timeline has recorded, and compared with the
rows of the event log. If derived rows do not name all rows that they depend on, all derived rows
are computed again.

The comparison does not need to know the erased events. It can therefore finish an erasure that was
killed. Rows that are not lost keep their positions, because other tables refer to these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.compute.compare import exact_json
from tidemark.compute.derived.base_rows import STEP, origin_of
from tidemark.compute.derived.rows import read_steps
from tidemark.compute.materialize import TempTables
from tidemark.define.derived.derived_source import DerivedSource, Lineage
from tidemark.define.derived.pairing import is_paired
from tidemark.define.helper_columns import name_helper
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.store.event_log.dead_letters import DEAD, dead_letter, is_dead
from tidemark.store.event_log.incoming_rows import select_dead_letters, select_decoded
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_PLACE = ["arrival", "position"]
_ID, _UNJOINED = name_helper("id"), name_helper("unjoined")
_SAME = ["arrival", _ID, _UNJOINED]
"""The columns that identify a row of a derived source at any position."""
_ARRIVAL, _POSITION = name_helper("base_arrival"), name_helper("base_position")
_BASE = [_ARRIVAL, _POSITION]
_NEWEST = name_helper("newest")


@dataclass(frozen=True)
class ChangedRows:
    """The rows that a derived source loses and gains.

    Args:
        lost: `arrival` and `position` of the events that the source loses.
        lost_letters: `arrival` and `position` of the unjoined rows that the source loses. Unjoined
            rows are rows of the bases that take no part.
        gained: the events that the source gains, with the columns of the event log.
        gained_letters: the unjoined rows that the source gains, with the columns of their table.
    """

    lost: DataFrame
    lost_letters: DataFrame
    gained: DataFrame
    gained_letters: DataFrame


def find_changed_rows(
    log: Log,
    source: DerivedSource,
    bases: Sequence[Log],
    gained: Sequence[DataFrame | None],
    temp_tables: TempTables,
    *,
    few: bool,
) -> ChangedRows:
    """Return the changes that make a derived source agree with its bases again.

    The source must have arrivals.

    Args:
        bases: the event logs of the bases, without the erased events.
        gained: for each base, `arrival` and `position` of the events that an erasure has added to
            the base's event log; None if there are none.
        temp_tables: the temporary tables for the rows of the result.
        few: true if the bases and the source have few rows.
    """
    keep = partial(temp_tables.materialize_frame, few=few)
    warehouse = log.warehouse
    lineage = source.derivation.lineage_columns
    keys = source.derivation.partner_keys
    timeline = log.read_timeline()
    positions = [arrival.position for arrival in timeline]
    steps = Steps.of_positions(bases, positions)
    events = _add_identity(log.read_events(-1, timeline[-1].arrival), source)
    letters = warehouse.read_frame(source.dead_letters_table)
    letters = letters.select(*_PLACE, F.col("read_from").alias(_ID))
    base_rows = [_read_places(base, keys or (), steps) for base in bases]
    if keys is None:
        affected_events = events.select(*_PLACE, _ID)
        logs = bases
    else:
        orphans = _union_all(
            _select_derived_from(events, base_lineage, rows, "left_anti")
            for base_lineage, rows in zip(lineage, base_rows, strict=True)
        )
        orphans = keep(orphans.distinct())
        affected = [keep(rows) for rows in _find_affected(base_rows, orphans, gained, keys)]
        partners = (
            _select_derived_from(events, base_lineage, rows, "left_semi")
            for base_lineage, rows in zip(lineage, affected, strict=True)
        )
        affected_events = _union_all(
            rows.select(*_PLACE, _ID) for rows in (orphans, *partners)
        ).distinct()
        logs = [
            base.with_only(_to_event_places(rows))
            for base, rows in zip(bases, affected, strict=True)
        ]
    affected_events = keep(affected_events.withColumn(_UNJOINED, F.lit(False)))

    computed = read_steps(warehouse, source, positions, logs).compute_rows()
    if not is_paired(source):
        computed = computed.withColumn(DEAD, dead_letter(F.lit(None).cast("string"), F.lit(None)))
    dead = is_dead([DEAD])
    computed = computed.withColumn("arrival", F.col(STEP).cast("bigint"))
    computed = _add_identity(computed, source).withColumns(
        {_UNJOINED: dead, _ID: F.when(dead, F.col("read_from")).otherwise(F.col(_ID))}
    )
    computed = keep(computed.drop(STEP))
    unjoined = letters.withColumn(_UNJOINED, F.lit(True))
    same_rows = _union_all(rows.select(*_SAME) for rows in (affected_events, unjoined))
    gained_rows = computed.join(same_rows, _SAME, "left_anti")
    gained_rows = keep(_add_arrival(_number_after_existing(gained_rows, events, letters), log))
    origins = _union_all(rows.select(_ID) for rows in base_rows)
    lost = affected_events.join(computed, _SAME, "left_anti").select(*_PLACE)
    lost_letters = letters.join(origins, _ID, "left_anti").select(*_PLACE)
    columns = [f"`{name}`" for name in (*source.columns, *ARRIVAL_COLUMNS)]
    return ChangedRows(
        lost=keep(lost),
        lost_letters=keep(lost_letters),
        gained=select_decoded(gained_rows).select(*columns),
        gained_letters=select_dead_letters(gained_rows),
    )


def _add_identity(rows: DataFrame, source: DerivedSource) -> DataFrame:
    """Return rows of a derived source with `_ID`, which identifies a row within its arrival.

    `_ID` is the lineage of the row: the rows of the bases that it names. If rows name none, `_ID`
    is the row's content, with a number to distinguish equal rows of an arrival.
    """
    lineage = source.derivation.lineage_columns
    if lineage:
        lineage_columns = dict.fromkeys(
            column
            for base_lineage in lineage
            for column in (base_lineage.arrival, base_lineage.position, *base_lineage.only)
        )
        return rows.withColumn(_ID, F.to_json(F.struct(*lineage_columns)))
    rows = rows.withColumn(_ID, exact_json(*(F.col(f"`{name}`") for name in source.columns)))
    same = Window.partitionBy("arrival", _ID).orderBy("position")
    return rows.withColumn(_ID, F.concat_ws("#", _ID, F.row_number().over(same)))


def _read_places(base: Log, keys: Sequence[str], steps: Steps) -> DataFrame:
    """Return arrival, position, origin and partner keys of the base's rows that steps have read."""
    _, through = steps.arrival_span(base.source.name)
    return base.read_events(-1, through).select(
        F.col("arrival").alias(_ARRIVAL),
        F.col("position").alias(_POSITION),
        origin_of(base.source).alias(_ID),
        *(f"`{key}`" for key in keys),
    )


def _select_derived_from(
    events: DataFrame, lineage: Lineage, rows: DataFrame, join_type: str
) -> DataFrame:
    """Return the events that were derived from some rows of a base.

    With `join_type="left_anti"`, return the events that were derived from other rows of the base.
    """
    arrival = F.col(lineage.arrival)
    position = F.col(lineage.position)
    same = (arrival == F.col(_ARRIVAL)) & (position == F.col(_POSITION))
    derived_rows = events.where(F.expr(lineage.base_condition) & arrival.isNotNull())
    return derived_rows.join(rows.select(_ARRIVAL, _POSITION), same, join_type)


def _find_affected(
    base_rows: Sequence[DataFrame],
    orphans: DataFrame,
    gained: Sequence[DataFrame | None],
    keys: Sequence[str],
) -> Iterator[DataFrame]:
    """Yield, for each base, the rows whose derived rows may change.

    Args:
        base_rows: the rows of each base, as `_read_places` returns them.
        orphans: the derived rows of erased events.
        gained: as in `find_changed_rows`.
        keys: the partner keys.
    """
    names = {name_helper(f"key_{n}"): F.col(f"`{key}`") for n, key in enumerate(keys)}
    equal = [column.eqNullSafe(F.col(name)) for name, column in names.items()]
    gained_rows = [
        rows.limit(0) if places is None else rows.join(_to_base_places(places), _BASE, "left_semi")
        for rows, places in zip(base_rows, gained, strict=True)
    ]
    if not keys:
        yield from gained_rows
        return
    columns = [column.alias(name) for name, column in names.items()]
    values = _union_all(rows.select(*columns) for rows in (orphans, *gained_rows)).distinct()
    for rows in base_rows:
        yield rows.join(values, reduce(and_, equal), "left_semi")


def _number_after_existing(rows: DataFrame, events: DataFrame, letters: DataFrame) -> DataFrame:
    used = _union_all(numbered.select(*_PLACE) for numbered in (events, letters))
    newest = used.groupBy("arrival").agg(F.max("position").alias(_NEWEST))
    order = Window.partitionBy("arrival").orderBy(_UNJOINED, "position")
    position = F.coalesce(_NEWEST, F.lit(-1)) + F.row_number().over(order)
    return rows.join(newest, "arrival", "left").withColumn("position", position.cast("bigint"))


def _add_arrival(rows: DataFrame, log: Log) -> DataFrame:
    timeline = log.warehouse.read_frame(log.source.timeline_table)
    return rows.join(
        timeline.select("arrival", "arrived_at", F.col("watermark_before").alias("watermark")),
        "arrival",
    )


def _to_event_places(rows: DataFrame) -> DataFrame:
    return rows.select(F.col(_ARRIVAL).alias("arrival"), F.col(_POSITION).alias("position"))


def _to_base_places(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("arrival").alias(_ARRIVAL), F.col("position").alias(_POSITION))


def _union_all(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
