"""What happened to the windows, told to Dagster, whoever ran them.

A continuous query, the commands' runs and backfills, a correction and an incremental run of Dagster
write the same row to the ledger. The sensor `<domain>_windows` reads those that are new and reports
the partitions that they touched as materialized, so that they stand beside those that Dagster
backfilled, which report themselves. Only a closed partition is reported, once when it closes and
again when late events change it: an open one would be reported at every arrival, and is not yet
what its reader waits for.

A step of Dagster that was killed has written its row, which says that the step tells of it, and may
not have told: what Dagster's event log lacks of such a run after a while is reported here too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import dagster as dg
from dagster import ResourceParam, SensorEvaluationContext
from dagster._core.definitions.data_version import CODE_VERSION_TAG

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark_assets import checks
from tidemark_assets.arrivals import EVERY
from tidemark_assets.comparisons import recorded
from tidemark_assets.fresh import freshness
from tidemark_assets.partition_changes import Mark, Touched, closed, watermark
from tidemark_assets.report import ROWS, RUN, lasted, moment
from tidemark_assets.resources import TidemarkResource
from tidemark_assets.self_reports import overdue_runs, untold_partitions
from tidemark_assets.spans import PartitionsOf

MOST = 100
"""Partitions reported in a tick, which takes some seconds; the rest follows in the next ones."""

MADE_BY = {
    "incremental": "a stream or an increment",
    "backfill": "a backfill from outside",
    "correction": "a correction",
    "erasure": "an erasure",
    "rollup": "a run of a roll-up",
    "switch": "a switch to rebuilt tables",
    "back": "a switch back to earlier tables",
}

SLACK = 600_000_000
"""Rows of the ledger come in order but for what two processes append at the same time.

So long a run also stays in view: its own step has told of it by then, or never will.
"""

ASKED = 20
"""Runs a tick of which Dagster's event log is asked whether their own steps told of them."""

KILLED = "a backfill whose step ended before it told of it"


def windows(
    domain: str,
    transforms: Mapping[str, Definition],
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
        glance, instance = tidemark.glance(), context.instance
        since, marks, passed, heard = _known(context.cursor)
        runs = glance.runs(max(0, since - SLACK))
        told: dict[str, int] = {}
        compared, told_through = recorded(glance, transforms, _compared(context.cursor))
        for event in compared:
            context.instance.report_runless_asset_event(event)
        for transform in transforms.values():
            name = transform.name
            before = _going_on(marks.get(name, Mark()), glance.life(name))
            mine = [r for r in runs if r["asset"] == name and not r["reported"]]
            fresh = [r for r in mine if before.seq < r["seq"] <= before.until]
            if not fresh or sum(told.values()) >= MOST:
                continue
            newest = fresh[-1]
            after = Mark(newest["seq"], watermark(newest), life=before.life)
            others = {r["seq"] for r in runs if r["asset"] == name} - {r["seq"] for r in mine}
            touched = list(closed(glance, transform, partitions(name), before, after, others))
            touched = [t for t in touched if t.start > before.done]
            checked = checks.checked(glance, transform, {r["seq"] for r in fresh})
            room = MOST - sum(told.values())
            if len(touched) > room:
                touched, checked = touched[:room], iter(())
                after = replace(before, until=after.seq, done=touched[-1].start)
            for event in (*reports(transform, touched, newest), *checked):
                instance.report_runless_asset_event(event)
            marks[name], told[name] = after, len(touched)
        overdue = overdue_runs([r for r in runs if r["asset"] in transforms], heard)
        for run in overdue[:ASKED]:
            if (room := MOST - sum(told.values())) <= 0:
                break
            transform = transforms[run["asset"]]
            own = [r for r in runs if r["asset"] == transform.name]
            left = untold_partitions(
                instance, glance, transform, partitions(transform.name), own, run
            )
            since_then = {r["seq"] for r in own if r["seq"] >= run["seq"]}
            checked = checks.checked(glance, transform, since_then) if left else iter(())
            for event in (*reports(transform, left[:room], run, KILLED), *checked):
                instance.report_runless_asset_event(event)
            if len(left) <= room:
                heard.add(run["run"])
            if left:
                told[transform.name] = told.get(transform.name, 0) + len(left[:room])
        # Otherwise some runs are still to be told of.
        if sum(told.values()) < MOST and len(overdue) <= ASKED:
            since = max([since, *(instant(r["ended_at"]) for r in runs)])
        events = {s: glance.newest_event(s) for s in {t.source.name for t in transforms.values()}}
        for name, mark in marks.items():
            if name not in transforms:
                continue
            source = transforms[name].source.name
            found = freshness(transforms[name], events[source], mark.watermark, fresh_within)
            if passed.get(name) != found.passed:
                instance.report_runless_asset_event(found)
            passed[name] = found.passed
        cursor = {
            "since": since,
            "marks": {a: asdict(m) for a, m in marks.items()},
            "fresh": passed,
            "heard": sorted(heard.intersection(r["run"] for r in runs)),
        }
        cursor["compared"] = told_through
        return dg.SensorResult(skip_reason=_said(told), cursor=json.dumps(cursor))

    return dg.Definitions(sensors=[sensor])


def reports(
    transform: Definition,
    touched: list[Touched],
    run: Mapping[str, Any],
    made_by: str | None = None,
) -> Iterator[dg.AssetMaterialization]:
    """What to report of closed partitions after a run of the ledger."""
    common = {
        "made by": made_by or MADE_BY[run["mode"]],
        RUN: run["run"],
        "complete through arrival": run["through_arrival"],
        "watermark now": moment(watermark(run)),
        **lasted({k: instant(v) if isinstance(v, datetime) else v for k, v in run.items()}),
    }
    tags = {CODE_VERSION_TAG: fingerprint(transform)}
    others = transform.late_tables
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


def _known(cursor: str | None) -> tuple[int, dict[str, Mark], dict[str, bool], set[str]]:
    known = json.loads(cursor or '{"since": 0, "marks": {}, "fresh": {}}')
    marks = {a: Mark(**m) for a, m in known["marks"].items()}
    return known["since"], marks, known["fresh"], set(known.get("heard", ()))


def _said(told: Mapping[str, int]) -> str:
    if not told:
        return "No run since the last look but those that report themselves."
    return "; ".join(f"{asset}: {count} partitions reported" for asset, count in told.items())


def _compared(cursor: str | None) -> int:
    """The number of the newest comparison that was reported; -1 before the first."""
    return json.loads(cursor or "{}").get("compared", -1)
