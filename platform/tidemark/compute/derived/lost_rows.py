"""Find how a derived source changes after events of its bases were erased.

Derived rows that were computed from an erased event are *lost*. A partner of the event has the same
keys (`partner_keys`), and may now have no partner, or another one. All derived rows with these keys
are therefore computed again, with the steps that the timeline has recorded, and compared with the
rows of the event log. If derived rows do not name all rows that they depend on, all derived rows
are computed again.

The comparison does not need to know the erased events. It can therefore finish an erasure that was
killed. Rows that are not lost keep their positions, because other tables refer to these.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from operator import and_

from pyspark.sql import Column, DataFrame, Window
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
from tidemark.store.warehouse import Warehouse

_PLACE = ["arrival", "position"]
_ID = name_helper("id")
_UNJOINED = name_helper("unjoined")
_SAME = ["arrival", _ID, _UNJOINED]
"""The columns that identify a row of a derived source at any position."""
_ARRIVAL = name_helper("base_arrival")
_POSITION = name_helper("base_position")
_BASE = [_ARRIVAL, _POSITION]
_PLACE_AND_ID = [*_PLACE, _ID]
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
    keys = source.derivation.partner_keys
    timeline = log.read_timeline()
    positions = [arrival.position for arrival in timeline]
    steps = Steps.of_positions(bases, positions)
    events = _add_identity(log.read_events(-1, timeline[-1].arrival), source)
    letters = log.warehouse.read_frame(source.dead_letters_table)
    letters = letters.select(*_PLACE, F.col("read_from").alias(_ID))
    base_rows = [_read_places(base, keys or (), steps) for base in bases]
    if keys is None:
        affected_events = events.select(_PLACE_AND_ID)
        logs = list(bases)
    else:
        affected_events, affected_rows = _find_affected_events(
            source, events, base_rows, gained, keys, keep
        )
        logs: list[Log] = []
        for base, rows in zip(bases, affected_rows, strict=True):
            logs.append(base.with_only(_to_event_places(rows)))
    affected_events = keep(affected_events.withColumn(_UNJOINED, F.lit(False)))
    computed = keep(_compute_with_identity(log.warehouse, source, positions, logs))
    unjoined = letters.withColumn(_UNJOINED, F.lit(True))
    existing_rows = affected_events.select(_SAME).unionByName(unjoined.select(_SAME))
    gained_rows = computed.join(existing_rows, _SAME, "left_anti")
    gained_rows = keep(_add_arrival(_number_after_existing(gained_rows, events, letters), log))
    origins = _union_all(rows.select(_ID) for rows in base_rows)
    lost = affected_events.join(computed, _SAME, "left_anti").select(_PLACE)
    lost_letters = letters.join(origins, _ID, "left_anti").select(_PLACE)
    columns = [f"`{name}`" for name in chain(source.columns, ARRIVAL_COLUMNS)]
    return ChangedRows(
        lost=keep(lost),
        lost_letters=keep(lost_letters),
        gained=select_decoded(gained_rows).select(columns),
        gained_letters=select_dead_letters(gained_rows),
    )


def _find_affected_events(
    source: DerivedSource,
    events: DataFrame,
    base_rows: Sequence[DataFrame],
    gained: Sequence[DataFrame | None],
    keys: Sequence[str],
    keep: Callable[[DataFrame], DataFrame],
) -> tuple[DataFrame, list[DataFrame]]:
    """Find the events of a derived source that an erasure may have changed.

    These events were derived from erased rows, or from rows that may now have another partner.

    Args:
        events: the events of the derived source, as `_add_identity` returns them.
        base_rows: the rows of each base, as `_read_places` returns them.
        gained: as in `find_changed_rows`.
        keys: the names of the columns in which partners agree (`partner_keys` of the derivation).
        keep: computes rows now, and returns them.

    Returns:
        The `arrival`, `position` and `_ID` of these events; and for each base, in the order of
        `base_rows`, those of its rows from which these events must be computed again.
    """
    lineage = source.derivation.lineage_columns
    orphan_parts: list[DataFrame] = []
    for base_lineage, rows in zip(lineage, base_rows, strict=True):
        orphan_parts.append(_select_derived_from(events, base_lineage, rows, "left_anti"))
    orphans = keep(_union_all(orphan_parts).distinct())
    affected_rows = [keep(rows) for rows in _find_affected(base_rows, orphans, gained, keys)]
    affected_events = orphans.select(_PLACE_AND_ID)
    for base_lineage, rows in zip(lineage, affected_rows, strict=True):
        partners = _select_derived_from(events, base_lineage, rows, "left_semi")
        affected_events = affected_events.unionByName(partners.select(_PLACE_AND_ID))
    return affected_events.distinct(), affected_rows


def _compute_with_identity(
    warehouse: Warehouse, source: DerivedSource, positions: Sequence[str], logs: Sequence[Log]
) -> DataFrame:
    """Compute the rows of a derived source. Return them with `arrival`, `_ID` and `_UNJOINED`."""
    computed = read_steps(warehouse, source, positions, logs).compute_rows()
    if not is_paired(source):
        computed = computed.withColumn(DEAD, dead_letter(F.lit(None).cast("string"), F.lit(None)))
    is_unjoined = is_dead([DEAD])
    computed = computed.withColumn("arrival", F.col(STEP).cast("bigint"))
    identity = F.when(is_unjoined, F.col("read_from")).otherwise(F.col(_ID))
    with_identity = _add_identity(computed, source)
    return with_identity.withColumns({_UNJOINED: is_unjoined, _ID: identity}).drop(STEP)


def _add_identity(rows: DataFrame, source: DerivedSource) -> DataFrame:
    """Return rows of a derived source with `_ID`, which identifies a row within its arrival.

    `_ID` is the lineage of the row: the rows of the bases that it names. If rows name none, `_ID`
    is the row's content, with a number to distinguish equal rows of an arrival.
    """
    lineage_columns: list[str] = []
    for base_lineage in source.derivation.lineage_columns:
        lineage_columns += [base_lineage.arrival, base_lineage.position]
        lineage_columns += base_lineage.only
    if lineage_columns:
        unique_columns = list(dict.fromkeys(lineage_columns))
        return rows.withColumn(_ID, F.to_json(F.struct(unique_columns)))
    rows = rows.withColumn(_ID, exact_json([F.col(f"`{name}`") for name in source.columns]))
    same_content = Window.partitionBy("arrival", _ID).orderBy("position")
    return rows.withColumn(_ID, F.concat_ws("#", _ID, F.row_number().over(same_content)))


def _read_places(base: Log, keys: Sequence[str], steps: Steps) -> DataFrame:
    """Return arrival, position, origin and partner keys of the base's rows that steps have read."""
    _, through = steps.arrival_span(base.source.name)
    columns = [
        F.col("arrival").alias(_ARRIVAL),
        F.col("position").alias(_POSITION),
        origin_of(base.source).alias(_ID),
    ]
    columns += [F.col(f"`{key}`") for key in keys]
    return base.read_events(-1, through).select(columns)


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
    gained_rows: list[DataFrame] = []
    for rows, places in zip(base_rows, gained, strict=True):
        if places is None:
            gained_rows.append(rows.limit(0))
        else:
            gained_rows.append(rows.join(_to_base_places(places), _BASE, "left_semi"))
    if not keys:
        yield from gained_rows
        return
    columns: list[Column] = []
    conditions: list[Column] = []
    for number, key in enumerate(keys):
        name = name_helper(f"key_{number}")
        column = F.col(f"`{key}`")
        columns.append(column.alias(name))
        conditions.append(column.eqNullSafe(F.col(name)))
    key_values = _union_all(rows.select(columns) for rows in (orphans, *gained_rows)).distinct()
    for rows in base_rows:
        yield rows.join(key_values, reduce(and_, conditions), "left_semi")


def _number_after_existing(rows: DataFrame, events: DataFrame, letters: DataFrame) -> DataFrame:
    numbered = events.select(_PLACE).unionByName(letters.select(_PLACE))
    newest = numbered.groupBy("arrival").agg(F.max("position").alias(_NEWEST))
    order = Window.partitionBy("arrival").orderBy(_UNJOINED, "position")
    position = F.coalesce(_NEWEST, F.lit(-1)) + F.row_number().over(order)
    return rows.join(newest, "arrival", "left").withColumn("position", position.cast("bigint"))


def _add_arrival(rows: DataFrame, log: Log) -> DataFrame:
    timeline = log.warehouse.read_frame(log.source.timeline_table)
    watermark = F.col("watermark_before").alias("watermark")
    return rows.join(timeline.select("arrival", "arrived_at", watermark), "arrival")


def _to_event_places(rows: DataFrame) -> DataFrame:
    return rows.select(F.col(_ARRIVAL).alias("arrival"), F.col(_POSITION).alias("position"))


def _to_base_places(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("arrival").alias(_ARRIVAL), F.col("position").alias(_POSITION))


def _union_all(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
