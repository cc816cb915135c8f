"""Which partitions runs of the ledger changed, told from the tables without the engine.

Only closed partitions count, once when they close and again when they change.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark_assets.spans import spans
from tidemark_streaming.glance import Glance


@dataclass(frozen=True)
class Mark:
    """Through where the runs of a life of an asset are reported: its commit and its watermark.

    Where a tick could not report all, `until` is the commit through which it wanted to, and `done`
    the start of the last partition that it reported.
    """

    seq: int = -1
    watermark: int | None = None
    until: int = sys.maxsize
    done: int = -sys.maxsize
    life: str = ""


@dataclass(frozen=True)
class Touched:
    """A closed partition that runs changed, as its table stands now."""

    key: str
    start: int
    rows: int
    events: int
    late: int
    open: int


def closed(
    glance: Glance,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    before: Mark,
    after: Mark,
    others: Collection[int] = (),
) -> Iterator[Touched]:
    """The partitions that are closed at `after` and have changed, or have closed, since `before`.

    Args:
        others: commits that don't count as a change, because they report themselves.
    """
    if after.watermark is None:
        return
    starts = glance.windows(transform.table, before.seq, others)
    # What was published as it came closes with its partition, perhaps without another event.
    opened = [] if before.watermark is None else [before.watermark - transform.window.reach]
    if not starts and not opened:
        return
    days = spans(partitions, min([*starts, *opened]), max([*starts, after.watermark]))
    if not days:
        return
    columns = ["events", "late_events", "final", "seq"]
    found = glance.between(transform.table, columns, days[0].start, days[-1].end)
    if found is None:
        return
    begins, rows = found[0], found[1].to_pylist()
    for day in days:
        closes = transform.window.closing(day.end)
        if closes > after.watermark:
            continue
        mine = [r for s, r in zip(begins, rows, strict=True) if day.start <= s < day.end]
        just_closed = before.watermark is None or closes > before.watermark
        changed = {r["seq"] for r in mine if r["seq"] > before.seq}.difference(others)
        if mine and (just_closed or changed):
            yield Touched(
                key=day.key,
                start=day.start,
                rows=len(mine),
                events=sum(r["events"] for r in mine),
                late=sum(r["late_events"] for r in mine),
                open=sum(not r["final"] for r in mine),
            )


def watermark(run: Mapping[str, Any]) -> int | None:
    """The watermark of a run, a row of the ledger, in microseconds; None is minus infinity."""
    return None if run["watermark"] is None else instant(run["watermark"])
