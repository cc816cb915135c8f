"""Report changes of windows to Dagster, from all runs.

A continuous query, the command line and Dagster's own steps write the same row to the ledger. The
sensor `<domain>_partitions` reads the new rows and reports the partitions that they changed as
materialized, next to those of Dagster's steps, which report themselves. It reports only closed
partitions: once when they close, and again when late events change them. An open partition would be
reported at every arrival, before its result is complete.

A Dagster step that was killed may have written its row, which says that the step reports itself,
without having reported. If Dagster's event log lacks such a run after a while, the sensor reports
it. The same applies to runs that a step reported under the keys of another prefix: if two prefixes
share one home, each has all runs. The sensor also reports changes of the check of the current
definition.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.define.definition import Definition
from tidemark.store.ledger import TABLE
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.spans import PartitionsOf
from tidemark_assets.checks import checks
from tidemark_assets.checks.comparisons import ReportedComparisons, report_new_comparisons
from tidemark_assets.checks.definition_check import report_new_results
from tidemark_assets.checks.freshness_check import freshness
from tidemark_assets.metadata.provenance import find_definition
from tidemark_assets.reports.partition_changes import (
    ReportPosition,
    closed_partitions,
    unreported_commits,
)
from tidemark_assets.reports.run_events import AssetEvent, reports
from tidemark_assets.reports.self_reported_runs import overdue_runs, unreported_partitions
from tidemark_assets.sensors.arrivals import TICK_SECONDS

MAX_PARTITIONS_PER_TICK = 400
"""The maximum number of partitions reported in a tick, which takes some seconds.

Later ticks report the rest.
"""

LEDGER_DISORDER_MICROS = 600_000_000
"""How far rows of the ledger may be out of order: two processes may append at the same time.

The sensor also watches a run for this long. After that, its own step will not report it any more.
"""

MAX_SEARCHED_RUNS = 20
"""The maximum number of runs per tick for which Dagster's event log is searched for a report."""

UNREPORTED_RUN = "a run that did not report itself to Dagster"
"""The text for the origin of a run whose step was killed, or reported it under another prefix's
keys.
"""


def windows(
    domain: str,
    transforms: Mapping[str, Definition],
    partitions: PartitionsOf,
    fresh_within: int,
    names: Names = PLAIN,
) -> dg.Definitions:
    """Create the sensor that reports changed partitions that are closed, and assets' freshness."""

    @dg.sensor(
        name=names.own(f"{domain}_partitions"),
        required_resource_keys=names.needs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports the partitions that streams, incremental runs and the command line updated: "
            "when they close, and when late events change them. It launches nothing."
        ),
    )
    def sensor(context: SensorEvaluationContext) -> dg.SensorResult:
        tidemark = names.tidemark(context)
        snapshot, instance = tidemark.snapshot(), context.instance
        ledger = snapshot.tables.id(TABLE)
        memory = _memory(context.cursor, ledger)
        since, marks, passed, heard = _known(memory)
        runs = snapshot.runs(max(0, since - LEDGER_DISORDER_MICROS))
        reported: dict[str, int] = {}
        validated = set[str]()
        compared, reported_through = report_new_comparisons(
            names, snapshot, transforms, _known_comparisons(memory)
        )
        events: list[AssetEvent] = [*compared]
        tables = {t.table for t in transforms.values()}
        for transform in transforms.values():
            name = transform.name
            before = _continue(marks.get(name, ReportPosition()), snapshot.table_id(name))
            mine = [
                r
                for r in runs
                if r["asset"] == name and before.commit_number < r["commit_number"] <= before.until
            ]
            if not mine or sum(reported.values()) >= MAX_PARTITIONS_PER_TICK:
                continue
            legs, mark = unreported_commits(mine, before.watermark)
            after = ReportPosition(mine[-1]["commit_number"], mark, table_id=before.table_id)
            fresh = [r for r in mine if not r["reported"]]
            if fresh:
                touched = list(closed_partitions(snapshot, transform, partitions(name), legs))
                touched = [t for t in touched if t.start > before.done]
                checked = checks.current_results(names, snapshot, transform)
                room = MAX_PARTITIONS_PER_TICK - sum(reported.values())
                if len(touched) > room:
                    touched, checked = touched[:room], iter(())
                    after = replace(before, until=after.commit_number, done=touched[-1].start)
                made = find_definition(tidemark.tables, transform)
                events += reports(
                    context,
                    names,
                    tidemark.tables,
                    transform,
                    made,
                    touched,
                    fresh[-1],
                    together=tables,
                )
                events += checked
                validated.add(name)
                reported[name] = len(touched)
            marks[name] = after
        overdue = overdue_runs([r for r in runs if r["asset"] in transforms], heard)
        for run in overdue[:MAX_SEARCHED_RUNS]:
            if (room := MAX_PARTITIONS_PER_TICK - sum(reported.values())) <= 0:
                break
            transform = transforms[run["asset"]]
            days = partitions(transform.name)
            left = unreported_partitions(instance, names, snapshot, transform, days, run)
            checked = checks.current_results(names, snapshot, transform) if left else iter(())
            made = find_definition(tidemark.tables, transform)
            events += [
                *reports(
                    context,
                    names,
                    tidemark.tables,
                    transform,
                    made,
                    left[:room],
                    run,
                    UNREPORTED_RUN,
                    tables,
                ),
                *checked,
            ]
            if len(left) <= room:
                heard.add(run["run"])
            if left:
                reported[transform.name] = reported.get(transform.name, 0) + len(left[:room])
        # The position only advances if nothing is left to report.
        if sum(reported.values()) < MAX_PARTITIONS_PER_TICK and len(overdue) <= MAX_SEARCHED_RUNS:
            since = max([since, *(r["ended_at"] for r in runs)])
        newest = {s: snapshot.newest_event(s) for s in {t.source.name for t in transforms.values()}}
        for name, mark in marks.items():
            if name not in transforms or mark.watermark is None:
                continue
            source = transforms[name].source.name
            key = names.key(transforms[name].table)
            found = freshness(key, newest[source], mark.watermark, fresh_within)
            if passed.get(name) != found.passed:
                events.append(found)
            passed[name] = found.passed
        quarantine_versions = {
            t.name: snapshot.tables.version(t.quarantine_table)
            for t in transforms.values()
            if t.checks
        }
        for name, version in quarantine_versions.items():
            # A person has released or discarded windows, or a step has reported its own run.
            if name not in validated and memory.get("quarantine", {}).get(name) != version:
                events += checks.current_results(names, snapshot, transforms[name])
        current = memory.get("current", {})
        events += report_new_results(tidemark.tables, transforms.values(), runs, current, names)
        cursor = {
            "ledger": ledger or memory.get("ledger"),
            "since": since,
            "marks": {a: asdict(m) for a, m in marks.items()},
            "fresh": passed,
            "heard": sorted(heard.intersection(r["run"] for r in runs)),
            "compared": reported_through,
            "quarantine": quarantine_versions,
            "current": {a: seen for a, seen in current.items() if a in transforms},
        }
        return dg.SensorResult(
            skip_reason=_describe(reported), cursor=json.dumps(cursor), asset_events=events
        )

    return dg.Definitions(sensors=[sensor])


def _continue(mark: ReportPosition, table_id: str | None) -> ReportPosition:
    """Return the position to continue from: a recreated asset is reported from the start."""
    return mark if mark.table_id == table_id else ReportPosition(table_id=table_id or "")


def _memory(cursor: str | None, ledger: str | None) -> dict[str, Any]:
    """Return the contents of a cursor.

    If the ledger is another one, such as that of another database, the parts that refer to it are
    dropped: all of its runs may have ended earlier.
    """
    memory: dict[str, Any] = json.loads(cursor or "{}")
    if ledger is None or memory.get("ledger") in (None, ledger):
        return memory
    return {"compared": memory["compared"]}


def _known(
    memory: Mapping[str, Any],
) -> tuple[int, dict[str, ReportPosition], dict[str, bool], set[str]]:
    marks = {a: ReportPosition(**m) for a, m in memory.get("marks", {}).items()}
    return memory.get("since", 0), marks, memory.get("fresh", {}), set(memory.get("heard", ()))


def _describe(reported: Mapping[str, int]) -> str:
    if not reported:
        return "No new runs except those that report themselves."
    return "; ".join(f"{asset}: {count} partitions reported" for asset, count in reported.items())


def _known_comparisons(memory: Mapping[str, Any]) -> ReportedComparisons:
    """Return the last comparison that was reported."""
    record, number = memory.get("compared", (None, -1))
    return record, number
