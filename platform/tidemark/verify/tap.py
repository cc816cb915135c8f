"""Tap: show the rows that a step of a run has read or written.

This needs no hook in the run. The rows that the run read, prepared, classified and aggregated
depend only on the event log and on the commit of the run. They are therefore recomputed with the
functions that runs use. The rows that the run wrote have the number of its commit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base import thresholds
from tidemark.base.errors import DataError, DefinitionError
from tidemark.compute.affected.final_windows import find_affected_range
from tidemark.compute.late_rows import select_late_table_events
from tidemark.compute.windowing import classify_scope, count_scope, prepare_scope, read_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import VERDICT
from tidemark.define.tables import TableName
from tidemark.define.transform import WindowedTransform
from tidemark.engine.queries.planning import Planning
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import number_is
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.rows import to_display
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

_Recompute = Callable[[Log, WindowedTransform, StateCommit], DataFrame]
_BY_WINDOW = ("window_start", "window_end")
_ORDER = ("arrival", "position", *_BY_WINDOW)


@dataclass(frozen=True)
class _Step:
    """A step of a run whose rows can be shown.

    Args:
        meaning: a description of the rows.
        recompute: a function that recomputes the rows of a commit from the event log; None for a
            step that writes its rows to a table.
        find_table: a function that returns the name of that table; None for other steps.
    """

    name: str
    meaning: str
    recompute: _Recompute | None = None
    find_table: Callable[[Definition], TableName] | None = None


@dataclass(frozen=True)
class TapResult:
    """The rows of a step, up to a limit. `more` is true if the step has more rows."""

    rows: Sequence[dict[str, Any]]
    more: bool


def _recount_partials(log: Log, transform: WindowedTransform, marker: StateCommit) -> DataFrame:
    earlier = None
    if transform.trigger.needs_rank and marker.adds_partials:
        stored = State(log.warehouse, transform).read_partials(
            find_affected_range(transform, marker)
        )
        earlier = stored.where(f"commit_number < {marker.commit_number}")
    return count_scope(log, transform, marker.counted_scope(), earlier)


def _in_scope(show: Callable[[Log, WindowedTransform, Scope], DataFrame]) -> _Recompute:
    return lambda log, transform, marker: show(log, transform, marker.counted_scope())


STEPS = (
    _Step(
        "read",
        "rows of the event log: events with the facts of their arrival",
        _in_scope(read_scope),
    ),
    _Step("prepared", "the same rows after the transform's function", _in_scope(prepare_scope)),
    _Step(
        "classified",
        "each event, once for each of its windows, with its lateness",
        _in_scope(classify_scope),
    ),
    _Step(
        "late",
        "events that are too late or have no event time, with the lag and the reason",
        select_late_table_events,
    ),
    _Step(
        "partials",
        "classified events, aggregated by window, keys and lateness, as the state stores them",
        _recount_partials,
    ),
    _Step(
        "panes",
        "firings that the run wrote to the pane table",
        find_table=lambda transform: transform.panes_table,
    ),
    _Step(
        "quarantined",
        "windows that failed an expectation, as stored in the quarantine",
        find_table=lambda transform: transform.quarantine_table,
    ),
    _Step(
        "published",
        "windows that the run wrote to the published table and no later run has rewritten",
        find_table=lambda transform: transform.published_table,
    ),
)


def list_steps(definition: Definition) -> list[_Step]:
    """Return the steps of an asset's runs, in order."""
    absent_steps = set[str]()
    if definition.accumulation is None:
        absent_steps.add("panes")
    if not definition.expectations:
        absent_steps.add("quarantined")
    steps: list[_Step] = []
    for step in STEPS:
        # A roll-up computes no events itself.
        is_of_base = definition.rolled_up_name is not None and step.recompute is not None
        if step.name not in absent_steps and not is_of_base:
            steps.append(step)
    return steps


def find_step(definition: Definition, name: str) -> _Step:
    steps = {step.name: step for step in list_steps(definition)}
    if name not in steps:
        raise DefinitionError(
            f"Runs of '{definition.name}' have no step '{name}'. Their steps are "
            f"{', '.join(steps)}."
        )
    return steps[name]


def tap_step(
    warehouse: Warehouse, definition: Definition, step: _Step, commit_number: int, limit: int
) -> TapResult:
    """Return the rows of a step in one run.

    Args:
        commit_number: the number of the run's commit, as in the ledger.
        limit: the maximum number of rows. The first rows are returned, ordered by arrival and
            position, or by window if the rows have no arrival.

    Raises:
        DataError: the asset has no run with this commit. For a step that writes its rows to a
            table, the result has no rows instead.
    """
    asset = Asset(warehouse, definition)
    if step.recompute is None:
        assert step.find_table is not None
        rows = _read_written(warehouse, step.find_table(definition), commit_number)
        return TapResult(_to_display(rows.slice(0, limit)), rows.num_rows > limit)
    commits = asset.state.read_commits_after(commit_number - 1)[:1]
    if not commits or commits[0].commit_number != commit_number:
        raise DataError(f"'{definition.name}' has no run {commit_number}.")
    with warehouse.use_planning(Planning.for_size(limit <= thresholds.SMALL_BATCH_ROWS)):
        rows = step.recompute(asset.log, asset.counting_transform, commits[0])
        order = [name for name in _ORDER if name in rows.columns]
        rows = fetch_dataframe(rows.orderBy(order).limit(limit + 1))
    return TapResult(_to_display(rows.slice(0, limit)), rows.num_rows > limit)


def _read_written(warehouse: Warehouse, table: str, commit_number: int) -> pa.Table:
    """Return the rows with a commit's number; no rows if the table does not exist yet."""
    if not warehouse.has_table(table):
        return pa.table({})
    rows = warehouse.load_rows(table, number_is("commit_number", commit_number))
    return rows.sort_by([(name, "ascending") for name in _BY_WINDOW])


def _to_display(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts, in which the lateness of an event is a word instead of a code."""
    displayed = to_display(rows)
    for row in displayed:
        if VERDICT in row:
            row[VERDICT] = classification.VERDICTS[row[VERDICT]]
    return displayed
