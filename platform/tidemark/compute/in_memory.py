"""Merge and finish a few partials in memory, with the same result as in the engine.

A query to the engine takes tenths of a second, even for very few rows. Most assets use counts,
sums, means, minimums and maximums, which declare how their partials merge in Arrow. Their windows
have fixed bounds and fire by the watermark or by arrivals. This module computes the windows of such
assets by the rules of `slot` and `lifecycle.aligned`. In all other cases, `is_supported` returns
False or `compute_changes` returns None, and the engine computes the rows.

| | supported in memory |
| --- | --- |
| runs | all: an increment changes windows, every other run replaces them |
| windows | windows of a transform (not of a roll-up) that don't merge and are all up to date |
| | through the same arrival |
| firings | none, or each arrival; whether a commit changes any window, with any aggregate |
| aggregates | those with an `arrow_merge`; sums that are far from overflowing; means, except |
| | of decimals; minimums and maximums of values other than NaN and -0.0 |
| keys | integers, booleans, strings; without expectations also dates, timestamps, and |
| | strings with control characters |
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.compute import slot
from tidemark.compute.affected.final_windows import find_final_end
from tidemark.define import classification
from tidemark.define.aggregates.arrow_merge import Array, ArrowMerge
from tidemark.define.aggregates.combiner import SLACK, Aggregate
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED, FIRED, FIRING, IS_DELETED, PHASE, SLOT, VERDICT
from tidemark.define.triggers import trigger
from tidemark.define.triggers.firings import EachArrival, Firing, Never
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.rows import INSTANT, is_comparable
from tidemark.store.rows import compute as pc

_NO_TRIGGER = -1
_NOT_FIRED = -1
_LARGEST_SUM = float(1 << 62)
_MORE_DIGITS = 10
_MAX_DIGITS = 28
"""The engine's sum of DECIMAL values has 10 digits more than the values.

A DECIMAL has at most 38 digits, so the values may have at most 28.
"""
_TIMING = {
    slot.EARLY: trigger.EARLY,
    slot.ON_TIME: trigger.ON_TIME,
    slot.LATE: trigger.LATE,
    slot.FINAL: trigger.LATE,
}
_AGGREGATIONS = [
    ("_events", "sum"),
    ("_late", "sum"),
    ("_last_arrival", "max"),
    ("_firing", "count_distinct"),
    ("_phase", "min"),
    ("_phase", "max"),
    ("_closing", "max"),
    ("_fired", "max"),
]


@dataclass(frozen=True)
class _Merging:
    """The partials of an aggregate, and how they merge.

    Args:
        parts: the arrays to merge, each with the name of the merging function.
        declared: the aggregate's declaration, which has the functions for the merged arrays.
    """

    parts: Sequence[tuple[Array, str]]
    declared: ArrowMerge

    def finish_values(self, merged: Sequence[Array]) -> Array:
        return self.declared.finish(*merged)

    def compute_slack(self, merged: Sequence[Array]) -> Array:
        if self.declared.slack is None:
            return pa.nulls(len(merged[0]), pa.float64())
        return self.declared.slack(*merged)


def is_supported(definition: Definition, commit_info: CommitInfo) -> bool:
    if not has_supported_firings(definition, commit_info):
        return False
    return all(a.arrow_merge is not None for a in definition.aggregates.values())


def has_supported_firings(definition: Definition, commit_info: CommitInfo) -> bool:
    """Return whether this module knows which windows have fired after a commit."""
    if definition.rolled_up_name is not None or definition.window.merges:
        return False
    if commit_info.before.covers or commit_info.after.covers:
        return False
    early = isinstance(definition.trigger.early, Never | EachArrival)
    late = isinstance(definition.trigger.late, Never | EachArrival)
    return early and late


def changes_nothing(partials: pa.Table, definition: Definition, commit_info: CommitInfo) -> bool:
    """Return whether a commit changes no window. The aggregates do not matter for this.

    Args:
        partials: as for `compute_changes`.
        commit_info: the record of an increment for which `has_supported_firings` returns True.
    """
    open_windows = _select_open_windows(partials, definition, commit_info)
    fired = _select_fired(open_windows, definition, commit_info.after.at)
    last_firings = fired[FIRED].to_numpy()
    return not _mask_changes(fired["window_end"], last_firings, definition, commit_info).any()


def compute_changes(
    partials: pa.Table, definition: Definition, commit_info: CommitInfo
) -> pa.Table | None:
    """Return the rows of the windows that a commit has changed, as they would be published.

    A commit that recomputes windows changes all of them. The rows also have `IS_DELETED`, which is
    false, and `SLACK`, the possible rounding errors. Return None if only the engine can compute the
    rows.

    Args:
        partials: all partials, after the commit, of the windows that the commit can change.
        commit_info: the record of a commit for which `is_supported` returns True.
    """
    for key in definition.keys:
        if not is_comparable(partials.schema.field(key).type):
            return None
    position = commit_info.after.at
    is_increment = commit_info.recomputed_ranges is None
    if is_increment:
        partials = _select_open_windows(partials, definition, commit_info)
    fired = _select_fired(partials, definition, position)
    mergings: list[_Merging] = []
    for name, aggregate in definition.aggregates.items():
        merging = _plan_merging(aggregate, fired[name])
        if merging is None:
            return None
        mergings.append(merging)
    merged_windows = _merge_by_window(fired, definition, mergings)
    rows = _finish_windows(merged_windows, definition, mergings, position)
    if is_increment:
        last_firings = rows["_fired"].to_numpy()
        changed = _mask_changes(rows["window_end"], last_firings, definition, commit_info)
        rows = rows.filter(pa.array(changed))
    rows = rows.drop_columns(["_fired"])
    stamps = {
        "as_of": pa.scalar(position.arrival, pa.int64()),
        "commit_number": pa.scalar(commit_info.commit_number, pa.int64()),
        "quality": pa.scalar(None, pa.string()),
        IS_DELETED: pa.scalar(False, pa.bool_()),
    }
    for name, stamp in stamps.items():
        rows = rows.append_column(name, pa.repeat(stamp, rows.num_rows))
    return rows


def keys_as_json(rows: pa.Table, keys: Sequence[str]) -> pa.Array | None:
    """Return the keys of rows as JSON, with the same text as `compare.keys_as_json`.

    Return None if the text might differ from the engine's.
    """
    if any(_is_written_otherwise(rows[key]) for key in keys):
        return None
    if not keys:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    texts = map(to_text, rows.select(list(keys)).to_pylist())
    return pa.array(texts, pa.string())


def _is_written_otherwise(values: Array) -> bool:
    """Return whether the engine's JSON text for the values of a key may differ from Python's.

    The engine uses capital letters in the escapes of control characters, and its own format for
    dates and timestamps.
    """
    if pa.types.is_string(values.type):
        return bool(pc.any(pc.match_substring_regex(values, r"[\x00-\x1f]")).as_py())
    return pa.types.is_temporal(values.type)


def _plan_merging(aggregate: Aggregate, partials: Array) -> _Merging | None:
    """Return how an aggregate's partials merge, or None if only the engine can merge them."""
    declared = aggregate.arrow_merge
    if declared is None or not declared.accepts(partials):
        return None
    parts = _select_parts(aggregate, declared, partials)
    for values, function in parts:
        if not _is_merged_as_by_engine(values, function):
            return None
    return _Merging(parts, declared)


def _select_parts(
    aggregate: Aggregate, declared: ArrowMerge, partials: Array
) -> list[tuple[Array, str]]:
    """Return the arrays to merge, each with the name of its merging function."""
    if isinstance(declared.functions, str):
        return [(partials, declared.functions)]
    fields = []
    if pa.types.is_struct(partials.type):
        fields = [field.name for field in partials.type]
    parts: list[tuple[Array, str]] = []
    for name, function in declared.functions.items():
        if name not in fields:
            raise DefinitionError(
                f"The `arrow_merge` of aggregate '{aggregate}' has the field '{name}', but its "
                f"partials have the type {partials.type}."
            )
        parts.append((pc.struct_field(partials, name), function))
    return parts


def _is_merged_as_by_engine(values: Array, function: str) -> bool:
    """Return whether Arrow's result for values is the same as the engine's."""
    if function == "sum":
        return _is_far_from_overflow(values)
    return _has_engine_order(values)


def _is_far_from_overflow(values: Array) -> bool:
    if pa.types.is_decimal128(values.type):
        return values.type.precision <= _MAX_DIGITS
    if pa.types.is_signed_integer(values.type):
        sizes = np.abs(pc.fill_null(values, 0).to_numpy().astype(float))
        return bool(sizes.sum() < _LARGEST_SUM)
    return pa.types.is_float64(values.type)


def _has_engine_order(values: Array) -> bool:
    """Return whether values have the same order in Arrow as in the engine.

    For the engine, NaN is the greatest value, and -0.0 is not less than 0.0.
    """
    if pa.types.is_floating(values.type):
        plain = pc.fill_null(values, 1).to_numpy()
        return not np.any(np.isnan(plain) | ((plain == 0) & np.signbit(plain)))
    return pa.types.is_decimal128(values.type) or is_comparable(values.type)


def _list_merged_parts(merged_windows: pa.Table, number: int, merging: _Merging) -> list[Array]:
    """Return the merged parts of an aggregate, with the types that they have in the engine.

    Args:
        number: the position of the aggregate among the transform's aggregates.
    """
    merged_parts: list[Array] = []
    for part, (values, function) in enumerate(merging.parts):
        merged = merged_windows[f"_{number}_{part}_{function}"].combine_chunks()
        if function == "sum" and pa.types.is_decimal128(values.type):
            digits = values.type.precision + _MORE_DIGITS
            merged = pc.cast(merged, pa.decimal128(digits, values.type.scale))
        merged_parts.append(merged)
    return merged_parts


def _select_fired(
    partials: pa.Table, definition: Definition, position: TimelinePosition
) -> pa.Table:
    """Return the admitted partials that have fired, with their firing, as `slot.select_fired` does.

    In contrast to that function, `FIRED` is never null: if no trigger fired the slot, `FIRED` is
    `_NO_TRIGGER`, which is less than any arrival.
    """
    counts = pc.and_(pc.is_valid(partials["window_start"]), partials[ADMITTED])
    counted = partials.filter(counts)
    slots = counted[SLOT].to_numpy()
    window_ends = _to_micros(counted["window_end"])
    on_time = counted[VERDICT].to_numpy() == classification.ON_TIME
    early_arrivals = _find_trigger_arrival(definition.trigger.early, slots)
    late_arrivals = _find_trigger_arrival(definition.trigger.late, slots)
    trigger_arrivals = np.where(on_time, early_arrivals, late_arrivals)
    is_fired_by_trigger = trigger_arrivals != _NO_TRIGGER
    final_watermarks = _find_final_watermark(window_ends, definition)
    firing_watermarks = np.where(on_time, window_ends, final_watermarks)
    is_fired_by_watermark = firing_watermarks <= _finite_watermark(position)
    trigger_phases = np.where(on_time, slot.EARLY, slot.LATE)
    watermark_phases = np.where(on_time, slot.ON_TIME, slot.FINAL)
    phases = np.where(is_fired_by_watermark, watermark_phases, _NOT_FIRED)
    # A trigger fires a slot before the watermark does.
    phases = np.where(is_fired_by_trigger, trigger_phases, phases)
    columns = {
        PHASE: phases,
        FIRED: trigger_arrivals,
        FIRING: np.where(is_fired_by_trigger, slots, 0),
    }
    for name, values in columns.items():
        counted = counted.append_column(name, pa.array(values, pa.int64()))
    return counted.filter(pa.array(phases != _NOT_FIRED))


def _select_open_windows(
    partials: pa.Table, definition: Definition, commit_info: CommitInfo
) -> pa.Table:
    """Return the partials of the windows that the commit can change."""
    end = find_final_end(definition, commit_info.before)
    if end is None:
        return partials
    return partials.filter(pa.array(_to_micros(partials["window_end"]) > end))


def _mask_changes(
    window_end: Array, fired: Array, definition: Definition, commit_info: CommitInfo
) -> Array:
    """Return a mask of the windows that a commit fires, closes, or makes final.

    Args:
        window_end, fired: the end of each window, and the arrival at which a trigger fired it.
    """
    ends = _to_micros(window_end)
    watermark_before = _finite_watermark(commit_info.before.at)
    watermark_after = _finite_watermark(commit_info.after.at)
    final_watermarks = _find_final_watermark(ends, definition)
    fired_again = fired > commit_info.before.at.arrival
    closed = (ends > watermark_before) & (ends <= watermark_after)
    became_final = (final_watermarks > watermark_before) & (final_watermarks <= watermark_after)
    return fired_again | closed | became_final


def _find_trigger_arrival(firing: Firing, slots: Array) -> Array:
    """Return the arrival at which the trigger fired each slot, as `Firing.find_firing_arrival`
    does.

    Return `_NO_TRIGGER` for slots that the trigger has not fired.

    Args:
        slots: the values of `SLOT`.
    """
    if isinstance(firing, EachArrival):
        return np.where(slots > 0, slots - 1, _NO_TRIGGER)
    return np.full(len(slots), _NO_TRIGGER)


def _merge_by_window(
    fired: pa.Table, definition: Definition, mergings: Sequence[_Merging]
) -> pa.Table:
    """Merge the fired partials of each window, and return the columns for `_finish_windows`."""
    window_columns = definition.by_window
    columns = {name: fired[name] for name in window_columns}
    columns["_events"] = fired["events"]
    columns["_last_arrival"] = fired["last_arrival"]
    columns["_phase"] = fired[PHASE]
    columns["_fired"] = fired[FIRED]
    # One number for a slot and its phase, of which there are four.
    columns["_firing"] = pc.add(pc.multiply(fired[FIRING], 4), fired[PHASE])
    columns["_closing"] = pc.cast(pc.equal(fired[PHASE], slot.ON_TIME), pa.int8())
    is_on_time = pc.equal(fired[VERDICT], classification.ON_TIME)
    columns["_late"] = pc.if_else(is_on_time, 0, fired["events"])
    aggregations = list(_AGGREGATIONS)
    for number, merging in enumerate(mergings):
        for part, (values, function) in enumerate(merging.parts):
            columns[f"_{number}_{part}"] = values
            aggregations.append((f"_{number}_{part}", function))
    partials = pa.table(columns)
    if _are_alone(partials, window_columns):
        return _skip_merge(partials, window_columns, aggregations)
    return _merge_partials(partials, window_columns, aggregations)


def _merge_partials(
    partials: pa.Table, window_columns: list[str], aggregations: list[tuple[str, str]]
) -> pa.Table:
    # Use one thread: the last digits of a sum of doubles depend on the order of addition.
    return partials.group_by(window_columns, use_threads=False).aggregate(aggregations)


def _are_alone(partials: pa.Table, window_columns: list[str]) -> bool:
    """Return whether each window has one partial, as after a backfill without late events."""
    windows = _merge_partials(partials.select(window_columns), window_columns, [])
    return windows.num_rows == partials.num_rows


def _skip_merge(
    partials: pa.Table, window_columns: list[str], aggregations: list[tuple[str, str]]
) -> pa.Table:
    """Return partials that are alone in their windows as if they had been merged.

    For many windows, this takes a small part of the time of a merge.
    """
    merged_types = _merge_partials(partials.slice(0, 1), window_columns, aggregations).schema
    columns = {name: partials[name] for name in window_columns}
    for name, function in aggregations:
        merged_name = f"{name}_{function}"
        values = partials[name]
        if function == "count_distinct":
            values = pa.repeat(1, partials.num_rows)
        elif function == "sum" and pa.types.is_floating(values.type):
            # A sum of doubles starts with 0.0, so it is never -0.0.
            values = pc.add(values, 0.0)
        columns[merged_name] = values.cast(merged_types.field(merged_name).type)
    return pa.table(columns)


def _finish_windows(
    merged_windows: pa.Table,
    definition: Definition,
    mergings: Sequence[_Merging],
    position: TimelinePosition,
) -> pa.Table:
    """Return the rows of windows from their merged partials, as `aligned.finish_windows` does.

    The column `_fired` is added: the latest arrival at which a trigger fired the window.
    """
    watermark = _finite_watermark(position)
    end = _to_micros(merged_windows["window_end"])
    phase = merged_windows["_phase_max"].to_numpy()
    closing = merged_windows["_closing_max"].to_numpy() == 1
    punctual = merged_windows["_phase_min"].to_numpy() <= slot.ON_TIME
    repeats = punctual & ~closing & (end <= watermark)
    phase = np.where(repeats, np.maximum(phase, slot.ON_TIME), phase)
    revision = merged_windows["_firing_count_distinct"].to_numpy() - np.where(repeats, 0, 1)
    timings = np.array([_TIMING[n] for n in sorted(_TIMING)])
    columns = {name: merged_windows[name] for name in definition.by_window}
    slack: dict[str, Array] = {}
    for number, (name, merging) in enumerate(zip(definition.aggregates, mergings, strict=True)):
        merged = _list_merged_parts(merged_windows, number, merging)
        columns[name] = merging.finish_values(merged)
        slack[name] = merging.compute_slack(merged)
    columns |= {
        "events": merged_windows["_events_sum"],
        "late_events": merged_windows["_late_sum"],
        "revision": pa.array(revision, pa.int32()),
        "timing": pa.array(timings[phase], pa.string()),
        "final": pa.array(_find_final_watermark(end, definition) <= watermark),
        "last_arrival": merged_windows["_last_arrival_max"],
        "_fired": merged_windows["_fired_max"],
        SLACK: pa.StructArray.from_arrays(list(slack.values()), names=list(slack)),
    }
    return pa.table(columns)


def _find_final_watermark(end: Array, definition: Definition) -> Array:
    return np.minimum(end + definition.allowed_lateness, INFINITY)


def _finite_watermark(position: TimelinePosition) -> int:
    if position.watermark is None:
        return -INFINITY
    return position.watermark


def _to_micros(instants: Array) -> Array:
    return instants.cast(INSTANT).cast(pa.int64()).to_numpy()
