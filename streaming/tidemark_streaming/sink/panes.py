"""Turn each change of a window into panes, by the accumulation mode of its asset.

| accumulation | panes of a window that fires again |
| --- | --- |
| accumulating | its new row |
| retracting | a retraction of its old row, then the new row |
| discarding | a pane for each firing since the old row, with the values of that firing only |

In every mode, a deleted window gives one pane: a retraction of its row.

Only published rows become panes: a quarantined window has none until it is released or passes
validation. In the accumulating and retracting modes, several firings of one run give one
pane. Discarding panes come from the table of panes. If the table lacks them (because the window was
quarantined in between, or has been recomputed since), the old row is retracted and the whole new
row is published. In every mode, the panes since a window's last retraction therefore determine the
window's value.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.define.definition import Definition
from tidemark_streaming.sink.changes import Change, Row, are_equal


@dataclass(frozen=True)
class Pane:
    """A pane of a window, or a retraction, to publish as one record.

    Args:
        row: the published row of the window; for a retraction, the row that is retracted.
        pane: the number of the firing.
        timing: the timing of the firing.
        values: the aggregates; None if the window did not fire and only its metadata changed.
        retraction: true if the pane retracts `row`.
    """

    row: Row
    pane: int
    timing: str
    values: Mapping[str, Any] | None
    retraction: bool = False


FiringsByWindow = Mapping[tuple[Any, ...], list[Row]]
"""The rows of a table of panes, indexed by window, keys and commit number."""


def index_firings(definition: Definition, rows: Iterable[Row]) -> FiringsByWindow:
    """Return the rows of a table of panes, indexed for `derive_panes`."""
    by_window: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        by_window[_firing_key(definition, row)].append(row)
    return by_window


def derive_panes(
    definition: Definition, change: Change, firings: FiringsByWindow
) -> Iterator[Pane]:
    """Yield the panes of a change, in order.

    Args:
        firings: the firings of the commits that the changes come from; only discarding mode needs
            them.
    """
    before = change.before
    after = change.after
    if after is None:
        if before is not None:
            yield _whole_pane(definition, before, retraction=True)
        return
    if before is not None and definition.accumulation == "discarding" and not change.recomputed:
        parts = _single_firing_panes(definition, before, after, firings)
        if parts is not None:
            yield from parts
            return
    if before is not None and definition.accumulation != "accumulating":
        yield _whole_pane(definition, before, retraction=True)
    yield _whole_pane(definition, after)


def _single_firing_panes(
    definition: Definition, previous_row: Row, row: Row, firings: FiringsByWindow
) -> list[Pane] | None:
    """Return a pane for each firing of a window since the row `previous_row`.

    Return None if the table of panes lacks one of the firings. If the window did not fire and only
    its metadata changed, return one pane without values.
    """
    fired = sorted(firings.get(_firing_key(definition, row), []), key=lambda row: row["pane"])
    missing = list(range(previous_row["revision"] + 1, row["revision"] + 1))
    if not missing and are_equal(
        _aggregate_values(definition, previous_row), _aggregate_values(definition, row)
    ):
        return [Pane(row, row["revision"], row["timing"], None)]
    if not missing or [row["pane"] for row in fired] != missing:
        return None
    return [Pane(row, r["pane"], r["timing"], _aggregate_values(definition, r)) for r in fired]


def _whole_pane(definition: Definition, row: Row, *, retraction: bool = False) -> Pane:
    return Pane(row, row["revision"], row["timing"], _aggregate_values(definition, row), retraction)


def _aggregate_values(definition: Definition, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in definition.aggregates}


def _firing_key(definition: Definition, row: Row) -> tuple[Any, ...]:
    return (repr([row[c] for c in definition.by_window]), row["commit_number"])
