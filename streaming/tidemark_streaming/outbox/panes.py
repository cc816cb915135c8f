"""Panes as they are published: each change of a window, as its accumulation has it.

| accumulation | what a window gives that fires again |
| --- | --- |
| accumulating | its row |
| retracting | a retraction of its row, then the new one |
| discarding | the panes that came since, each of the events of its firing alone |

A window that leaves gives a retraction of its row, in each of them.
What is published goes out, and nothing else: a withheld window does not until it is released or
passes, and of several firings in one run those that accumulate are one pane. A discarding pane
comes from the table of panes. Where that does not have it (the window was withheld in between, or
was computed anew since), the window is retracted and comes whole. So in every accumulation a window
is what its panes since its last retraction say.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.define.definition import Definition
from tidemark_streaming.outbox.changes import Change, Row


@dataclass(frozen=True)
class Pane:
    """A pane on its way out.

    Args:
        row: the window's row, as it is published; of a retraction, as it was.
        pane: the number of its firing.
        timing: of its firing.
        values: the aggregates; None where the window's facts have changed and no event came.
        retraction: whether it takes the row back.
    """

    row: Row
    pane: int
    timing: str
    values: Mapping[str, Any] | None
    retraction: bool = False


Fired = Mapping[tuple[Any, ...], list[Row]]
"""The rows of a table of panes, by window, keys and commit."""


def fired(transform: Definition, rows: Iterable[Row]) -> Fired:
    """The rows of a table of panes, so that `panes` finds them."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[_place(transform, row)].append(row)
    return found


def panes(transform: Definition, change: Change, since: Fired) -> Iterator[Pane]:
    """The panes of a change, in their order.

    Args:
        since: what fired with the commits of the change, where panes are discarding.
    """
    before, after = change.before, change.after
    if after is None:
        if before is not None:
            yield _whole(transform, before, retraction=True)
        return
    if before is not None and transform.accumulation == "discarding" and not change.anew:
        parts = _parts(transform, before, after, since)
        if parts is not None:
            yield from parts
            return
    if before is not None and transform.accumulation != "accumulating":
        yield _whole(transform, before, retraction=True)
    yield _whole(transform, after)


def _parts(transform: Definition, before: Row, after: Row, since: Fired) -> list[Pane] | None:
    """The panes of a window that fired again; None where they are not there."""
    fired = sorted(since.get(_place(transform, after), []), key=lambda row: row["pane"])
    missing = list(range(before["revision"] + 1, after["revision"] + 1))
    if not missing and _values(transform, before) == _values(transform, after):
        return [Pane(after, after["revision"], after["timing"], None)]
    if not missing or [row["pane"] for row in fired] != missing:
        return None
    return [Pane(after, r["pane"], r["timing"], _values(transform, r)) for r in fired]


def _whole(transform: Definition, row: Row, *, retraction: bool = False) -> Pane:
    return Pane(row, row["revision"], row["timing"], _values(transform, row), retraction)


def _values(transform: Definition, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in transform.aggregates}


def _place(transform: Definition, row: Row) -> tuple[Any, ...]:
    return (repr([row[c] for c in transform.by_window]), row["seq"])
