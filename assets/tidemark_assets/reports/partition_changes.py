"""Read from the tables, without the engine, which partitions the runs of the ledger changed.

Only closed partitions count: once when they close, and again when they change. A run therefore
affects the partitions that it closed, and the partitions that it changed after they had closed.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import dagster as dg

from tidemark.base.instants import parse_instant
from tidemark.define.definition import Definition
from tidemark_assets.base.spans import Span, spans
from tidemark_streaming.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class ReportPosition:
    """The newest commit of an asset that is reported to Dagster, and the watermark after it.

    If there are too many partitions for one tick, the next tick continues. In this case, `until` is
    the newest commit to report, and `done` is the start of the last partition already reported.
    """

    commit_number: int = -1
    watermark: int | None = None
    until: int = sys.maxsize
    done: int = -sys.maxsize
    table_id: str = ""


@dataclass(frozen=True)
class _CommitRange:
    """Consecutive commits of an asset.

    The watermarks before the commits (`low`) and after them (`high`) determine which partitions the
    commits close.
    """

    commits: frozenset[int]
    low: int | None
    high: int | None


@dataclass(frozen=True)
class ChangedPartition:
    """A closed partition that runs changed, with its current counts in the table.

    Args:
        changing: the number of rows that are not final.
    """

    key: str
    start: int
    rows: int
    events: int
    late: int
    changing: int


def closed_partitions(
    snapshot: Snapshot,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    legs: Sequence[_CommitRange],
) -> Iterator[ChangedPartition]:
    """Yield the partitions that commits closed, or changed after they had closed.

    Args:
        legs: the commits, as ranges.
    """
    highs = [leg.high for leg in legs if leg.high is not None]
    if not highs:
        return
    starts = snapshot.changed_windows(
        transform.published_table, frozenset().union(*(leg.commits for leg in legs))
    )
    # A window that was published early closes with its partition, possibly without another event.
    opened = [leg.low - transform.window.max_extent for leg in legs if leg.low is not None]
    if not starts and not opened:
        return
    first = max(parse_instant(partitions.start), min([*starts, *opened]))
    edge = spans(partitions, first, first)
    columns = ["events", "late_events", "final", "commit_number"]
    windows = (
        snapshot.read_windows(transform.published_table, columns, edge[0].start, max(highs))
        if edge
        else None
    )
    if windows is None or not windows[0]:
        return
    days = spans(partitions, edge[0].start, max(windows[0]))
    rows = _group_by_day(days, windows[0], windows[1].to_pylist())
    for day, day_rows in zip(days, rows, strict=True):
        closes = transform.window.last_window_end(day.end)
        commits = {r["commit_number"] for r in day_rows}
        if day_rows and any(_is_affected(leg, closes, commits) for leg in legs):
            yield ChangedPartition(
                key=day.key,
                start=day.start,
                rows=len(day_rows),
                events=sum(r["events"] for r in day_rows),
                late=sum(r["late_events"] for r in day_rows),
                changing=sum(not r["final"] for r in day_rows),
            )


def unreported_commits(
    runs: Iterable[Mapping[str, Any]], low: int | None
) -> tuple[list[_CommitRange], int | None]:
    """Return the commits that no Dagster step reports, as ranges, and the watermark after all runs.

    Args:
        runs: rows of one asset in the ledger, in order and without gaps.
        low: the watermark before the first of these runs; None is minus infinity.
    """
    legs = list[_CommitRange]()
    for is_reported, together in groupby(runs, itemgetter("reported")):
        before = low
        commits = set[int]()
        for run in together:
            commits.add(run["commit_number"])
            low = run["watermark"] if _advances_watermark(run) else low
        if not is_reported:
            legs.append(_CommitRange(frozenset(commits), before, low))
    return legs, low


def as_commit_range(snapshot: Snapshot, run: Mapping[str, Any]) -> _CommitRange:
    """Return, as a range, the commit of a run that a Dagster step must report."""
    before = (
        r
        for r in snapshot.runs_before(run["asset"], run["commit_number"])
        if _advances_watermark(r)
    )
    low = next((r["watermark"] for r in reversed(list(before))), None)
    return _CommitRange(
        frozenset({run["commit_number"]}),
        low if _advances_watermark(run) else run["watermark"],
        run["watermark"],
    )


def _advances_watermark(run: Mapping[str, Any]) -> bool:
    """Return whether a run closes the partitions that its watermark has passed.

    All runs do, except a run of a Dagster step that replaces only a range of windows.
    """
    return not run["reported"] or run["window_from"] is None


def _group_by_day(
    days: Sequence[Span], begins: Sequence[int], rows: Sequence[dict[str, Any]]
) -> list[list[dict[str, Any]]]:
    """Return a list of rows for each day. Rows outside all days are left out.

    Args:
        begins: the window start of each row, in microseconds. It determines the day of the row.
    """
    starts = [day.start for day in days]
    by_day = [list[dict[str, Any]]() for _ in days]
    for begin, row in zip(begins, rows, strict=True):
        index = bisect_right(starts, begin) - 1
        if index >= 0 and begin < days[index].end:
            by_day[index].append(row)
    return by_day


def _is_affected(leg: _CommitRange, closes: int, commits: set[int]) -> bool:
    if leg.high is None or closes > leg.high:
        return False
    return leg.low is None or closes > leg.low or not leg.commits.isdisjoint(commits)
