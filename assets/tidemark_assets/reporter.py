"""What happened to the windows, told to Dagster, whoever ran them.

A continuous query, the commands' runs and backfills, a correction and an incremental run of Dagster
write the same row to the ledger. The sensor `<domain>_windows` reads those that are new and reports
the partitions that they touched as materialized, so that they stand beside those that Dagster
backfilled, which report themselves. Only a closed partition is reported, once when it closes and
again when late events change it: an open one would be reported at every arrival, and is not yet
what its reader waits for.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import dagster as dg
from dagster import ResourceParam, SensorEvaluationContext
from dagster._core.definitions.data_version import CODE_VERSION_TAG

from tidemark.base.instants import instant
from tidemark.define.rollup import RollUp
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows.closing import closing
from tidemark_assets import checks, describe
from tidemark_assets.arrivals import EVERY
from tidemark_assets.fresh import freshness
from tidemark_assets.report import ROWS, moment
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.spans import PartitionsOf, spans
from tidemark_streaming.glance import Glance

MOST = 100
"""Partitions reported in a tick, which takes some seconds; the rest follows in the next ones."""

MADE_BY = {
    "incremental": "a stream or an increment",
    "backfill": "a backfill from outside",
    "correction": "a correction",
    "rollup": "a run of a roll-up",
}

SLACK = 600_000_000
"""Rows of the ledger come in order but for what two processes append at the same time."""


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


def windows(
    domain: str,
    transforms: Mapping[str, WindowedTransform],
    partitions: PartitionsOf,
    fresh_within: int,
) -> dg.Definitions:
    """Reports the closed partitions that runs changed, and who is not fresh."""

    @dg.sensor(
        name=f"{domain}_windows",
        minimum_interval_seconds=EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports the partitions that streams, increments and the command line brought "
        "up to date, when they close and when late events change them. It launches nothing.",
    )
    def sensor(
        context: SensorEvaluationContext, tidemark: ResourceParam[TidemarkResource]
    ) -> dg.SensorResult:
        glance = tidemark.glance()
        since, marks, passed = _known(context.cursor)
        runs = glance.runs(max(0, since - SLACK))
        told: dict[str, int] = {}
        for transform in transforms.values():
            name = transform.name
            before = _going_on(marks.get(name, Mark()), glance.life(name))
            mine = [r for r in runs if r["asset"] == name and not r["reported"]]
            fresh = [r for r in mine if before.seq < r["seq"] <= before.until]
            if not fresh or sum(told.values()) >= MOST:
                continue
            newest = fresh[-1]
            mark = newest["watermark"]
            after = Mark(newest["seq"], None if mark is None else instant(mark), life=before.life)
            others = {r["seq"] for r in runs if r["asset"] == name} - {r["seq"] for r in mine}
            touched = list(closed(glance, transform, partitions(name), before, after, others))
            touched = [t for t in touched if t.start > before.done]
            checked = checks.checked(glance, transform, {r["seq"] for r in fresh})
            room = MOST - sum(told.values())
            if len(touched) > room:
                touched, checked = touched[:room], iter(())
                after = replace(before, until=after.seq, done=touched[-1].start)
            for event in (*reports(transform, touched, newest), *checked):
                context.instance.report_runless_asset_event(event)
            marks[name], told[name] = after, len(touched)
        if sum(told.values()) < MOST:  # Otherwise some runs are still to be told of.
            since = max([since, *(instant(r["ended_at"]) for r in runs)])
        events = {s: glance.newest_event(s) for s in {t.source.name for t in transforms.values()}}
        for name, mark in marks.items():
            if name not in transforms:
                continue
            source = transforms[name].source.name
            found = freshness(transforms[name], events[source], mark.watermark, fresh_within)
            if passed.get(name) != found.passed:
                context.instance.report_runless_asset_event(found)
            passed[name] = found.passed
        cursor = {
            "since": since,
            "marks": {a: asdict(m) for a, m in marks.items()},
            "fresh": passed,
        }
        return dg.SensorResult(skip_reason=_said(told), cursor=json.dumps(cursor))

    return dg.Definitions(sensors=[sensor])


def closed(
    glance: Glance,
    transform: WindowedTransform,
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
        closes = closing(transform.window, day.end)
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


def reports(
    transform: WindowedTransform, touched: list[Touched], run: Mapping[str, Any]
) -> Iterator[dg.AssetMaterialization]:
    """What to report of closed partitions after a run of the ledger."""
    mark = run["watermark"]
    common = {
        "made by": MADE_BY[run["mode"]],
        "complete through arrival": run["through_arrival"],
        "watermark now": moment(None if mark is None else instant(mark)),
    }
    tags = {CODE_VERSION_TAG: describe.code_version(transform)}
    others: list[str] = []
    if not isinstance(transform, RollUp):
        others += [transform.late_table, transform.late_loss_table]
    if transform.expectations:
        others.append(transform.quarantine_table)
    for partition in touched:
        own = {
            ROWS: partition.rows,
            "events": partition.events,
            "late events": partition.late,
            "open windows": partition.open,
        }
        yield dg.AssetMaterialization(
            transform.table, partition=partition.key, metadata=own | common, tags=tags
        )
        for table in others:
            yield dg.AssetMaterialization(
                table, partition=partition.key, metadata=common, tags=tags
            )


def _going_on(mark: Mark, life: str | None) -> Mark:
    """Where to go on from: of an asset that was dropped and made anew, all is told."""
    return mark if mark.life == life else Mark(life=life or "")


def _known(cursor: str | None) -> tuple[int, dict[str, Mark], dict[str, bool]]:
    known = json.loads(cursor or '{"since": 0, "marks": {}, "fresh": {}}')
    return known["since"], {a: Mark(**m) for a, m in known["marks"].items()}, known["fresh"]


def _said(told: Mapping[str, int]) -> str:
    if not told:
        return "No run since the last look but those that report themselves."
    return "; ".join(f"{asset}: {count} partitions reported" for asset, count in told.items())
