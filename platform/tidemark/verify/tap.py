"""Tap: show the rows that passed one step of a run.

No hook in the run is needed. The rows that it read, prepared, classified and aggregated are a
function of the log and of its commit, so the same functions recompute them. The rows that it wrote
carry the commit's number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base.errors import DataError, DefinitionError
from tidemark.compute.late_rows import late_events
from tidemark.compute.pane import counted, covered, taken, taken_prepared
from tidemark.compute.settled import changing
from tidemark.define import verdict as judge
from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform
from tidemark.engine.planning import Planning
from tidemark.engine.requests import fetch
from tidemark.store.asset import Asset
from tidemark.store.commit_info import CommitInfo
from tidemark.store.conditions import InRanges
from tidemark.store.log import Log
from tidemark.store.rows import SMALL_BATCH_ROWS
from tidemark.store.rows import to_display as as_told
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

_BY_WINDOW = ("window_start", "window_end")
_ORDER = ("arrival", "position", *_BY_WINDOW)


@dataclass(frozen=True)
class Step:
    """A step of a run whose rows can be shown.

    Args:
        meaning: description of the rows.
        again: recomputes a commit's rows from the log; None for rows that a run writes.
        table: the attribute of a definition with the name of the table that the rows are written
            to.
    """

    name: str
    meaning: str
    again: Callable[[Log, WindowedTransform, CommitInfo], DataFrame] | None = None
    table: str = ""


@dataclass(frozen=True)
class Tapped:
    """The rows that passed a step, and whether there were `more`."""

    rows: Sequence[dict[str, Any]]
    more: bool


def _partials(log: Log, transform: WindowedTransform, marker: CommitInfo) -> DataFrame:
    earlier = None
    if transform.trigger.ranked and marker.seq > 0 and not marker.replaces:
        stored = State(log.warehouse, transform).read(changing(transform, marker))
        earlier = stored.where(f"seq < {marker.seq}")
    return counted(log, transform, marker, earlier)


_AGAIN = (
    ("read", "rows of the log: events with the facts of their arrival", taken),
    ("prepared", "the same, as the transform's function gives them", taken_prepared),
    ("judged", "each event, once for each of its windows, with its verdict", covered),
    (
        "late",
        "those that came too late or have no event time, with the lag and the reason",
        late_events,
    ),
    (
        "partials",
        "judged events, added up by window, keys and verdict: what the state takes in",
        _partials,
    ),
)
_WRITTEN = (
    ("panes", "firings that the run wrote to the table of panes", "panes_table"),
    (
        "withheld",
        "windows that failed an expectation, as the quarantine has them",
        "quarantine_table",
    ),
    (
        "published",
        "windows that the run wrote to the published table, and no later one has since",
        "table",
    ),
)
STEPS = (
    *(Step(name, meaning, again=again) for name, meaning, again in _AGAIN),
    *(Step(name, meaning, table=table) for name, meaning, table in _WRITTEN),
)


def steps(transform: Definition) -> list[Step]:
    """Return the steps that an asset's runs have, in order."""
    away = set[str]()
    if transform.follows is not None:
        away |= {step.name for step in STEPS if step.again is not None}
    if transform.accumulation is None:
        away.add("panes")
    if not transform.expectations:
        away.add("withheld")
    return [step for step in STEPS if step.name not in away]


def step_of(transform: Definition, name: str) -> Step:
    """Return the step with that name.

    Raises:
        DefinitionError: the asset's runs have no such step.
    """
    known = {step.name: step for step in steps(transform)}
    if name not in known:
        raise DefinitionError(
            f"Runs of '{transform.name}' have no step '{name}': they have {', '.join(known)}."
        )
    return known[name]


def tap(warehouse: Warehouse, transform: Definition, step: Step, seq: int, limit: int) -> Tapped:
    """Return the rows that passed a step in one run.

    Args:
        seq: number of the run's commit, as in the ledger.
        limit: maximum number of rows, the first by arrival or window.

    Raises:
        DataError: the state has no commit with that number.
    """
    asset = Asset(warehouse, transform)
    if step.again is None:
        rows = _written(warehouse, getattr(transform, step.table), seq)
        return Tapped(_told(rows.slice(0, limit)), rows.num_rows > limit)
    found = asset.state.since(seq - 1)[:1]
    if not found or found[0].seq != seq:
        raise DataError(f"'{transform.name}' has no run {seq}.")
    with warehouse.planning(Planning.of(limit <= SMALL_BATCH_ROWS)):
        rows = step.again(asset.log, asset.counting, found[0])
        order = [name for name in _ORDER if name in rows.columns]
        rows = fetch(rows.orderBy(*order).limit(limit + 1))
    return Tapped(_told(rows.slice(0, limit)), rows.num_rows > limit)


def _written(warehouse: Warehouse, table: str, seq: int) -> pa.Table:
    """Return the rows with a commit's number; none if the table does not exist yet."""
    if not warehouse.exists(table):
        return pa.table({})
    rows = warehouse.take(table, InRanges("seq", ((seq, seq + 1),), instants=False))
    return rows.sort_by([(name, "ascending") for name in _BY_WINDOW])


def _told(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows in Python with their verdicts as words."""
    told = as_told(rows)
    for row in told:
        if "verdict" in row:
            row["verdict"] = judge.VERDICTS[row["verdict"]]
    return told
