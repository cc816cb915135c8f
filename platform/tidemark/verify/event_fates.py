"""Trace an event to every row of an asset that includes the event.

The event is prepared and classified again by the functions that runs use, with the same result as
in every run. The rows of its windows are read from the tables. If the asset has a trigger other
than the default, or panes, then a row or pane may lack events of its window. The windows are then
recomputed with a single aggregate that counts only this event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.instants import BEGINNING, INFINITY, parse_instant
from tidemark.compute import rollups, slot
from tidemark.compute.pane_table import compute_panes
from tidemark.compute.windowing import as_of, classify_scope, count_scope, finish_windows
from tidemark.define import aggregates as agg
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, VERDICT, name_helper
from tidemark.define.rollup import RollUp
from tidemark.define.triggers.trigger import Trigger
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import Equals, InRanges, number_is
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.rows import to_display
from tidemark.store.warehouse import Warehouse
from tidemark.verify.traced_events import Event

_Row = Mapping[str, Any]

NOT_RUN = "not run"
NOT_YET = "not yet"
LEFT_OUT = "left out"
PLACED = "placed"
"""The progress of an event in an asset.

- `NOT_RUN`: the asset has never run.
- `NOT_YET`: the asset has not processed the event's arrival yet.
- `LEFT_OUT`: the asset's function left the event out. For a roll-up: no window of its base counts
  the event.
- `PLACED`: the asset has assigned the event to windows and classified its lateness.
"""
_THROUGH = name_helper("through")


@dataclass(frozen=True)
class WindowMembership:
    """The relation of an event to one of its windows, for one combination of keys.

    Args:
        start, end: the bounds of the window in microseconds; None if the event has no event time.
            For sessions, the bounds of the session that the event alone would form.
        verdict: the lateness of the event, one of `classification.VERDICTS`.
        counts: true if the window counts the event: the event is not too late, or a backfill or
            correction admitted it.
        row: the published row of the window, if there is one.
        in_row: true if the published row includes the event.
        quarantined: the quarantined row of the window, with the reason, if there is one.
        panes: the panes of the window that include the event, in order.
        late: the row of the event in the late table, if there is one.
    """

    start: int | None
    end: int | None
    keys: _Row
    verdict: str
    counts: bool
    row: _Row | None = None
    in_row: bool = False
    quarantined: _Row | None = None
    panes: Sequence[_Row] = ()
    late: _Row | None = None


@dataclass(frozen=True)
class Fate:
    """The windows of an event in one asset, with the rows that include it.

    Args:
        follows: the asset that a roll-up follows; None for other assets.
        state: one of `NOT_RUN`, `NOT_YET`, `LEFT_OUT` and `PLACED`.
        watermark: the source's watermark after the last arrival that the asset has processed, in
            microseconds; None if the asset has not run, or the source has no watermark yet.
        places: the windows of the event.
    """

    asset: str
    follows: str | None
    state: str
    watermark: int | None = None
    places: Sequence[WindowMembership] = field(default=())


def find_fates(warehouse: Warehouse, transforms: Sequence[Definition], event: Event) -> list[Fate]:
    """Return the fate of an event in each asset on its source. A roll-up comes after its base.

    Return an empty list for a dead letter, because assets do not process dead letters.
    """
    fates: dict[str, Fate] = {}
    if event.dead_letter is not None:
        return []
    few = event.arrival.rows <= thresholds.SMALL_BATCH_ROWS
    bases_first = sorted(transforms, key=lambda transform: transform.rolled_up_name is not None)
    with warehouse.use_planning(Planning.for_size(few)):
        for transform in bases_first:
            if transform.source.name == event.source:
                base_fate = fates.get(transform.rolled_up_name or "")
                asset = Asset(warehouse, transform)
                fates[transform.name] = _find_fate(asset, event, base_fate)
    return list(fates.values())


def _find_fate(asset: Asset, event: Event, base_fate: Fate | None) -> Fate:
    transform = asset.transform
    commit = asset.state.read_commit(asset.published_commit_number())
    if commit.commit_number < 0:
        return Fate(transform.name, transform.rolled_up_name, NOT_RUN)
    coverage = rollups.find_coverage_after(transform, commit)
    watermark = coverage.at.watermark
    # If a correction counts a too-late event in the base, the roll-up counts the event too.
    complete = base_fate is not None and any(map(_is_late_but_counted, base_fate.places))
    rows = _classify_event(asset, event, coverage, complete=complete)
    through = coverage.position_column("arrival").alias(_THROUGH)
    windows = fetch_dataframe(
        rows.select(*transform.by_window, VERDICT, ADMITTED, through).distinct()
    )
    places: list[WindowMembership] = []
    for row in windows.to_pylist():
        if row[_THROUGH] >= event.arrival.arrival:
            places.append(_find_membership(asset, event, coverage, row))
    if places:
        state = PLACED
    elif windows.num_rows or event.arrival.arrival > coverage.newest_arrival:
        state = NOT_YET
    else:
        state = LEFT_OUT
    return Fate(transform.name, transform.rolled_up_name, state, watermark, places)


def _is_late_but_counted(membership: WindowMembership) -> bool:
    too_late = classification.VERDICTS[classification.TOO_LATE]
    return membership.counts and membership.verdict == too_late


def _classify_event(asset: Asset, event: Event, coverage: Coverage, *, complete: bool) -> DataFrame:
    """Return a row for each window of the event.

    Its columns include the window's bounds and keys, the event's lateness (`VERDICT`), and whether
    the window counts the event (`ADMITTED`).

    Args:
        complete: true if too-late events count.
    """
    counting = asset.counting_transform
    number = event.arrival.arrival
    rows = classify_scope(asset.log, counting, Scope(number - 1, number, complete=complete))
    rows = rows.where(F.col("position") == event.position)
    if not isinstance(asset.transform, RollUp):
        return rows
    with_slots = slot.assign_slots(rows, counting, asset.log, None)
    return rollups.assign_windows(asset.warehouse, asset.transform, with_slots, coverage)


def _find_membership(asset: Asset, event: Event, coverage: Coverage, row: _Row) -> WindowMembership:
    """Return whether a window counts an event, and the window's rows in the asset's tables.

    Args:
        row: the event in that window: a row of `_classify_event`, as a dict.
    """
    warehouse = asset.warehouse
    transform = asset.transform
    keys = {key: row[key] for key in transform.keys}
    membership = WindowMembership(
        start=_to_micros(row["window_start"]),
        end=_to_micros(row["window_end"]),
        keys=keys,
        verdict=classification.VERDICTS[row[VERDICT]],
        counts=row[ADMITTED],
    )
    if row[VERDICT] in (classification.TOO_LATE, classification.NO_EVENT_TIME):
        membership = replace(membership, late=_read_late_row(asset, event, membership))
    if row[VERDICT] == classification.TOO_LATE and not membership.counts:
        membership = replace(membership, counts=_is_counted_later(asset, event, membership))
    if membership.start is None or membership.end is None:
        return membership
    published = _read_window(warehouse, transform, transform.published_table, membership)
    quarantined = _read_window(warehouse, transform, transform.quarantine_table, membership)
    newest = (published or quarantined or [None])[0]
    membership = replace(
        membership, row=next(iter(published), None), quarantined=next(iter(quarantined), None)
    )
    if newest is None or not membership.counts:
        return membership
    has_fired = newest["as_of"] >= event.arrival.arrival
    panes: list[_Row] = []
    if transform.trigger != Trigger() or transform.accumulation is not None:
        # The firing that an event joins depends on all events of its window.
        ranges = _window_ranges(transform, newest)
        complete = membership.verdict == classification.VERDICTS[classification.TOO_LATE]
        has_fired, panes = _find_firings(
            asset, event, coverage, ranges, membership, complete=complete
        )
    is_included = membership.row is not None and membership.row["as_of"] >= event.arrival.arrival
    return replace(membership, in_row=is_included and has_fired, panes=panes)


def _find_firings(
    asset: Asset,
    event: Event,
    coverage: Coverage,
    ranges: Ranges,
    membership: WindowMembership,
    *,
    complete: bool,
) -> tuple[bool, list[_Row]]:
    """Return whether a window has fired with the event, and the panes that include the event.

    Args:
        ranges: the result of `_window_ranges` for the window.
        membership: the event's window, of which only the keys are used.
        complete: true if too-late events count.
    """
    is_event = f"arrival = {event.arrival.arrival} AND position = {event.position}"
    # The name of any aggregate works as a column, because no key has the same name.
    name = next(iter(asset.counting_transform.aggregates))
    aggregates = {name: agg.count(where=is_event)}
    counting = replace(asset.counting_transform, aggregates=aggregates, expectations=())
    scope = Scope.from_coverage(coverage, ranges, complete=complete)
    stored = count_scope(asset.log, counting, scope)
    current = as_of(coverage)
    counts_event = f"`{name}` > 0"
    windows = finish_windows(stored, counting, asset.log, current).where(counts_event)
    has_fired = any(_has_keys(row, membership.keys) for row in fetch_dataframe(windows).to_pylist())
    table = counting.panes_table
    if counting.accumulation is None or not asset.warehouse.has_table(table):
        return has_fired, []
    pane_columns = [*counting.by_window, "pane", "timing", "retraction"]
    panes = compute_panes(stored, counting, asset.log, current).where(counts_event)
    computed = fetch_dataframe(panes.select(pane_columns)).to_pylist()
    with_event = {tuple(row.values()) for row in computed}
    own_panes: list[_Row] = []
    for row in to_display(asset.warehouse.load_rows(table, InRanges("window_start", ranges))):
        identity = tuple(row[column] for column in pane_columns)
        if identity in with_event and _has_keys(row, membership.keys):
            own_panes.append(row)
    # A retraction comes before the pane that replaces the retracted row.
    return has_fired, sorted(own_panes, key=lambda row: (row["pane"], not row["retraction"]))


def _has_keys(row: _Row, keys: _Row) -> bool:
    return all(row[key] == value for key, value in keys.items())


def _window_ranges(definition: Definition, row: _Row) -> Ranges:
    """Return the range that contains only the window's start.

    For a session, return the range that contains the starts of all windows merged into the session.
    """
    start = parse_instant(row["window_start"])
    end = parse_instant(row["window_end"])
    return ((start, end if definition.window.merges else start + 1),)


def _read_late_row(asset: Asset, event: Event, membership: WindowMembership) -> _Row | None:
    table = asset.counting_transform.late_table
    if not asset.warehouse.has_table(table):
        return None
    number = event.arrival.arrival
    of_arrival = number_is("arrival", number)
    of_event = Equals("correlation_id", event.correlation_id)
    rows = to_display(asset.warehouse.load_rows(table, of_arrival, of_event))
    for row in rows:
        is_event = row["position"] == event.position
        is_window = _to_micros(row["window_start"]) == membership.start
        if is_event and is_window and _has_keys(row, membership.keys):
            return row
    return None


def _is_counted_later(asset: Asset, event: Event, membership: WindowMembership) -> bool:
    """Return whether a backfill or a correction counts a too-late event.

    A backfill or correction counts every too-late event of the window that arrived before the run.
    If it counted an event that arrived later than this one, or with it, it counted this one, too.
    """
    merges = asset.transform.window.merges
    assert membership.start is not None
    assert membership.end is not None
    ranges: Ranges = ALL_WINDOWS
    if not merges:
        ranges = ((membership.start, membership.start + 1),)
    rows = asset.state.read_partials(ranges)
    rows = rows.where((F.col(VERDICT) == classification.TOO_LATE) & F.col(ADMITTED))
    if merges:
        starts = F.unix_micros("window_start")
        ends = F.unix_micros("window_end")
        rows = rows.where((starts <= membership.start) & (ends >= membership.end))
    for key, value in membership.keys.items():
        rows = rows.where(F.col(f"`{key}`").eqNullSafe(F.lit(value)))
    (newest,) = fetch_dataframe(rows.agg(F.max("last_arrival").alias("newest")))[
        "newest"
    ].to_pylist()
    return newest is not None and newest >= event.arrival.arrival


def _read_window(
    warehouse: Warehouse, definition: Definition, table: str, membership: WindowMembership
) -> list[dict[str, Any]]:
    """Return a table's rows with the keys and the window of `membership`.

    For sessions, return the rows whose session contains that window.
    """
    if not warehouse.has_table(table):
        return []
    assert membership.start is not None
    assert membership.end is not None
    start_range = (membership.start, membership.start + 1)
    end_range = (membership.end, membership.end + 1)
    if definition.window.merges:
        start_range = (BEGINNING, membership.start + 1)
        end_range = (membership.end, INFINITY)
    in_start_range = InRanges("window_start", (start_range,))
    in_end_range = InRanges("window_end", (end_range,))
    rows = warehouse.load_rows(table, in_start_range, in_end_range)
    for key, value in membership.keys.items():
        if value is None:
            rows = rows.filter(pc.field(key).is_null())
        else:
            rows = rows.filter(pc.field(key) == pc.scalar(value))
    return rows.to_pylist()


def _to_micros(value: Any) -> int | None:  # noqa: ANN401 (a row's value)
    if value is None:
        return None
    return parse_instant(value)
