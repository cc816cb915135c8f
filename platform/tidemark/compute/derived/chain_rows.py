"""Compute the rows of a chain: the windows of an asset, as events.

With `rows="final"`, the events are final windows. A final window belongs to the first step after
which nothing can change the window (`Chain.settling_time`). The asset has published the arrivals of
all steps, so its published table has the row of each final window.

With `rows="changes"`, a step has the firings of its arrival, each preceded by the rows that the
firing replaces. The asset's state has the partials of all firings, of every run. Rows of a step
that cancel, a row and its equal retraction, are left out: a firing that changes nothing must not
fire the windows over the chain.

A commit that changed windows without an arrival, such as a correction, is a step of its own. The
step retracts the rows that the windows had before the commit, and adds the rows after the commit,
both as of the newest arrival that the chain has read. The state no longer has the partials that the
commit replaced, so the events are counted again from the event log. For each window, the recount
includes the same too-late events as the last commit that replaced the window.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute import slot
from tidemark.compute.affected.final_windows import find_changeable_range
from tidemark.compute.compare import exact_json
from tidemark.compute.derived.base_rows import STEP
from tidemark.compute.derived.settling import add_settling_step
from tidemark.compute.differences import cancel_rows
from tidemark.compute.lifecycle import choose_lifecycle
from tidemark.compute.pane_table import list_values
from tidemark.compute.rollups import assign_windows_within, find_holding_ranges
from tidemark.compute.windowing import as_of, count_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import FIRST, LAST, RETRACTION, Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import FIRED, PHASE, VERDICT, name_helper
from tidemark.define.rollup import base_transform
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit, drop_superseded
from tidemark.store.commits.conditions import InRanges, window_starts_in
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.ranges import ALL_WINDOWS, NO_WINDOWS, Ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Steps

_FIRED_WINDOW = [name_helper("fired_end"), name_helper("fired_start")]
"""The columns with the window of a firing. A replaced row may have another window."""
_TEXT, _SIGN, _FIRING = map(name_helper, ("text", "sign", "newest_firing"))


def chain_rows(source: DerivedSource, chain: Chain, logs: Sequence[Log], steps: Steps) -> DataFrame:
    (log,) = logs
    asset = chain.asset
    order: list[str | Column] = []
    if chain.rows == "changes":
        rows = _cancel_retractions(asset, _list_all_changes(chain, log, steps))
        order += _FIRED_WINDOW
        order += asset.keys
        order += ["pane", ~F.col(RETRACTION)]
    else:
        rows = _final_windows(chain, log, steps)
    _check_types(source, rows)
    order += ["window_end", "window_start"]
    order += asset.keys
    positions = Window.partitionBy(STEP).orderBy(order)
    origin = exact_json([F.col(f"`{name}`") for name in asset.by_window])
    columns: list[str | Column] = [
        STEP,
        (F.row_number().over(positions) - 1).cast("bigint").alias("position"),
        F.concat_ws(" ", F.lit(asset.name), origin).alias("read_from"),
        F.lit(None).cast("string").alias("correlation_id"),
    ]
    columns += asset.keys
    columns += asset.aggregates
    columns += [
        F.col("window_start").alias(FIRST),
        F.timestamp_micros(F.unix_micros("window_end") - 1).alias(LAST),
    ]
    if chain.rows == "changes":
        columns.append(RETRACTION)
    return rows.select(columns)


def estimate_recounted_rows(chain: Chain, logs: Sequence[Log], steps: Steps) -> int:
    """Return about how many events must be counted again for these steps."""
    (log,) = logs
    if all(step.change is None for step in steps.steps):
        return 0
    _, through = steps.arrival_span(log.source.name)
    return log.estimate_events(-1, through, BEGINNING, INFINITY)


def _final_windows(chain: Chain, log: Log, steps: Steps) -> DataFrame:
    """Return the windows that become final in these steps."""
    base = log.source.name
    ends = NO_WINDOWS
    watermark_before = steps.watermark_before(base)
    advances = steps.watermark_advances(base)
    if advances:
        first_end = BEGINNING
        if watermark_before is not None:
            first_end = max(watermark_before - chain.settling_time + 1, BEGINNING)
        last_end, _ = advances[-1]
        if last_end != INFINITY:
            last_end -= chain.settling_time
        ends = ((first_end, last_end + 1),)
    windows = log.warehouse.read_frame(
        chain.asset.published_table, InRanges("window_end", ends)
    ).where("final")
    return _add_passing_step(windows, F.lit(chain.settling_time), log, steps).where(f"{STEP} >= 0")


def _list_all_changes(chain: Chain, log: Log, steps: Steps) -> DataFrame:
    """Return the rows of all steps, with the columns of `_list_changes`."""
    parts: list[DataFrame] = []
    for first_step, part in steps.split_at_changes():
        changes = _list_changes(chain, log, part)
        parts.append(changes.withColumn(STEP, F.col(STEP) + first_step))
    return reduce(DataFrame.unionByName, parts)


def _list_changes(chain: Chain, log: Log, steps: Steps) -> DataFrame:
    """Return the rows of some steps, which are either consecutive arrivals or a single commit.

    The columns are `STEP`, `pane`, `_FIRED_WINDOW`, and those of `list_values`.
    """
    base = log.source.name
    asset = Asset(log.warehouse, chain.asset)
    arrival_before, through = steps.arrival_span(base)
    marks = {a.arrival: a.after for a in steps.arrivals[base]}
    current = Coverage(TimelinePosition(through, marks[through]))
    first = steps.steps[0]
    last = steps.steps[-1]
    assert last.results is not None
    if first.change is not None:
        return _list_changed_windows(asset, log, current, first.change.known, last.results.commit)
    previous = Coverage(TimelinePosition(arrival_before, steps.watermark_before(base)))
    transform = replace(chain.asset, accumulation="retracting")
    stored = _read_partials(
        asset, log, current, find_changeable_range(transform, previous), last.results.commit
    )
    fired = choose_lifecycle(transform).list_firings(stored, transform, log, as_of(current))
    at_end = F.col(PHASE) == slot.ON_TIME
    wait = F.when(at_end, 0).otherwise(transform.allowed_lateness)
    fired = fired.where(slot.has_fired_since(transform, as_of(previous)))
    fired = _add_passing_step(fired, wait, log, steps)
    step = F.when(_fires_alone(), F.col(FIRED) - F.lit(arrival_before + 1)).otherwise(F.col(STEP))
    fired = _add_fired_window(fired.withColumn(STEP, step.cast("int")))
    fired = fired.where(f"{STEP} BETWEEN 0 AND {through - arrival_before - 1}")
    return list_values(fired, transform, [STEP, "pane", *_FIRED_WINDOW])


def _list_changed_windows(
    asset: Asset, log: Log, current: Coverage, known_commit: int, commit: int
) -> DataFrame:
    """Return the rows that a commit replaced, as retractions, and the rows after the commit.

    Rows that are the same before and after the commit are in both parts.

    Args:
        current: the coverage as of which the rows of both commits are computed: through the newest
            arrival that the chain has read.
        known_commit, commit: the numbers of the earlier and the later commit.
    """
    transform = replace(asset.transform, accumulation="retracting")
    replaced: list[Ranges] = []
    for replacing in asset.state.read_commits_after(known_commit):
        if replacing.commit_number <= commit and replacing.recomputed_ranges is not None:
            replaced.append(replacing.recomputed_ranges)
    ranges: Ranges = ALL_WINDOWS
    # Sessions near a range change, too.
    if ALL_WINDOWS not in replaced and not transform.window.merges:
        ranges = find_holding_ranges(transform, reduce(add, replaced))
    facts = ["pane", *_FIRED_WINDOW]

    def list_rows(number: int) -> DataFrame:
        """Return the rows of all firings so far, as of the commit with this number."""
        stored = _read_partials(asset, log, current, ranges, number)
        fired = choose_lifecycle(transform).list_firings(stored, transform, log, as_of(current))
        has_fired = F.col(FIRED) <= current.at.arrival
        fired = _add_fired_window(fired.where(~_fires_alone() | has_fired))
        return list_values(fired, transform, facts)

    replaced_rows = list_rows(known_commit).withColumn(RETRACTION, ~F.col(RETRACTION))
    changes = replaced_rows.unionByName(list_rows(commit))
    no_time = F.lit(None).cast("timestamp")
    constants = dict.fromkeys(_FIRED_WINDOW, no_time)
    constants |= {STEP: F.lit(0), "pane": F.lit(0)}
    return changes.withColumns(constants)


def _cancel_retractions(asset: Definition, rows: DataFrame) -> DataFrame:
    """Return the rows of each step without the rows that cancel: a row and its equal retraction."""
    names = asset.by_window
    names += asset.aggregates
    text = exact_json([F.col(f"`{name}`") for name in names])
    sign = F.when(F.col(RETRACTION), -1).otherwise(1)
    rows = rows.withColumns({_TEXT: text, _SIGN: sign})
    facts = [F.first(f"`{name}`").alias(name) for name in names]
    facts.append(F.max(F.struct(*_FIRED_WINDOW, "pane")).alias(_FIRING))
    net = cancel_rows(rows, [STEP, _TEXT], _SIGN, facts)
    net = net.select("*", f"{_FIRING}.*", (F.col(_SIGN) < 0).alias(RETRACTION))
    return net.drop(_TEXT, _SIGN, _FIRING)


def _fires_alone() -> Column:
    """Return whether a slot fired at the arrival `FIRED`, instead of by the watermark.

    The caller must still compare `FIRED` with the arrivals that the chain has read, because the
    state may also have firings at later arrivals.
    """
    return F.col(PHASE).isin(slot.EARLY, slot.LATE)


def _add_fired_window(fired: DataFrame) -> DataFrame:
    bounds = (F.col("window_end"), F.col("window_start"))
    return fired.withColumns(dict(zip(_FIRED_WINDOW, bounds, strict=True)))


def _read_partials(
    asset: Asset, log: Log, current: Coverage, ranges: Ranges, commit: int
) -> DataFrame:
    """Return the partials of windows that start in one of the ranges, as of a commit."""
    stored = assign_windows_within(asset, asset.state.read_partials, current, ranges)
    # Read the commits after the partials, so that no replacement is missed.
    later_commits = asset.state.read_commits_after(commit)
    if all(later.recomputed_ranges is None for later in later_commits):
        return stored
    counting = base_transform(asset.transform)
    counting = replace(counting, aggregates=asset.transform.aggregates, expectations=())
    # The newest arrival whose too-late events count, by window.
    included_arrival = F.lit(-1)
    newest_arrival = current.newest_arrival
    for replacement in _list_replacements(asset, commit):
        last_included = F.lit(-1)
        if replacement.late_events == "include":
            last_included = replacement.after.position_column("arrival")
            newest_arrival = max(newest_arrival, replacement.after.newest_arrival)
        is_replaced = F.expr(window_starts_in(replacement.recomputed_ranges or ()).to_sql())
        included_arrival = F.when(is_replaced, last_included).otherwise(included_arrival)
    is_admitted = F.col(VERDICT) <= classification.LATE
    counts = is_admitted | (F.col("arrival") <= included_arrival)

    def count_within(count_ranges: Ranges) -> DataFrame:
        scope = Scope(-1, newest_arrival, count_ranges, complete=True, arrivals=counts)
        return count_scope(log, counting, scope)

    return assign_windows_within(asset, count_within, current, ranges)


def _list_replacements(asset: Asset, commit: int) -> list[StateCommit]:
    """Return the commits up to this one that replaced windows and were not superseded, in order."""
    commits: list[StateCommit] = []
    for earlier in asset.state.read_commits_after(-1):
        if earlier.commit_number <= commit:
            commits.append(earlier)
    return [
        earlier for earlier in drop_superseded(commits) if earlier.recomputed_ranges is not None
    ]


def _add_passing_step(windows: DataFrame, wait: Column, log: Log, steps: Steps) -> DataFrame:
    """Return windows with `STEP`: the first step after which the watermark has passed the window's
    end by `wait`.
    """
    base = log.source.name
    watermark_before = steps.watermark_before(base)
    advances = steps.watermark_advances(base)
    # Limit the sum, because even the watermark of a source that has ended is only INFINITY.
    settled = F.least(F.unix_micros("window_end") + wait, F.lit(INFINITY)) - 1
    return add_settling_step(windows, STEP, settled, watermark_before, advances)


def _check_types(source: DerivedSource, windows: DataFrame) -> None:
    """Refuse windows whose columns have other types than the chain declares."""
    types_in_asset = {field.name: field.dataType.simpleString() for field in windows.schema}
    wrong: dict[str, str] = {}
    for name, declared in source.columns.items():
        if types_in_asset.get(name, declared) != declared:
            wrong[name] = types_in_asset[name]
    if wrong:
        column, type_in_asset = next(iter(wrong.items()))
        raise DefinitionError(
            f"Chain '{source.name}' has the column '{column}' as {source.columns[column]}, but it "
            f"is {type_in_asset} in its asset. Specify types={wrong!r} in the definition of the "
            "chain."
        )
