"""Report changes of windows to Dagster, from all runs.

Continuous queries, the command line and Dagster's own steps write the same rows to the ledger.
Dagster's steps also report their runs themselves. For all other runs, the sensor `<domain>_reports`
reads the new rows and reports the changed partitions as materialized. It reports only closed
partitions: once when they close, and again when late events change them. An open partition would be
reported at every arrival, before its result is complete.

In the ledger, the run of a Dagster step is marked as reported, but a killed step may have sent no
report. The sensor therefore searches Dagster's event log after a while, and reports the run if it
is missing there. If two prefixes share one home, all runs are reported under both prefixes: a step
reports its run under its own prefix, and the sensor of the other prefix does the same later.

The sensor also reports changes of the check `definition_is_current`.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import dagster as dg

from tidemark.base.instants import is_wait_over
from tidemark.define.definition import Definition
from tidemark.store.ledger import TABLE
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.spans import PartitionsOf
from tidemark_assets.checks import checks
from tidemark_assets.checks.comparisons import ReportedComparisons, report_new_comparisons
from tidemark_assets.checks.definition_check import report_new_results
from tidemark_assets.checks.freshness_check import freshness
from tidemark_assets.metadata.provenance import find_definition
from tidemark_assets.metadata.run_metadata import RUN
from tidemark_assets.reports.partition_changes import (
    ChangedPartition,
    ReportPosition,
    as_commit_range,
    closed_partitions,
    unreported_commits,
)
from tidemark_assets.reports.run_events import AssetEvent, reports
from tidemark_assets.sensors.frame import PartResult, SensorPart, Tick
from tidemark_streaming.snapshot.snapshot import Snapshot

MAX_PARTITIONS_PER_TICK = 400
"""Maximum number of partitions to report in a tick, which takes some seconds.

Later ticks report the rest.
"""

LEDGER_DISORDER_MICROS = 600_000_000
"""How far rows of the ledger may be out of order, in microseconds, because two processes may append
at the same time.

The sensor also watches each run for this long. After that, the run's own step will not report any
more.
"""

MAX_SEARCHED_RUNS = 20
"""The maximum number of runs per tick for which Dagster's event log is searched for a report."""

UNREPORTED_RUN = "a run that did not report itself to Dagster"
"""The text for the origin of a run whose step was killed, or reported the run under the keys of
another prefix.
"""

REPORT_TIMEOUT_MICROS = 300_000_000
"""Microseconds after which a step that has not reported its run counts as dead."""

_PAGE = 200
"""The number of materializations to read at a time."""


def partitions_reporter(
    transforms: Mapping[str, Definition],
    partitions: PartitionsOf,
    fresh_within: int,
    names: Names = PLAIN,
) -> SensorPart:
    """Return the reporter of closed partitions that changed, and of changed check results."""

    def report(tick: Tick) -> PartResult:
        snapshot = tick.tidemark.snapshot()
        ledger = snapshot.tables.table_id(TABLE)
        memory = _Memory.read(tick.memory or {}, ledger)
        runs = snapshot.read_runs(max(0, memory.since - LEDGER_DISORDER_MICROS))
        reporter = _Reporter(tick, names, transforms, partitions, snapshot, memory, runs)
        compared, memory.compared = report_new_comparisons(
            names, snapshot, transforms, memory.compared
        )
        events = [
            *compared,
            *reporter.report_new_runs(),
            *reporter.report_overdue_runs(),
            *reporter.report_freshness(fresh_within),
            *reporter.report_decisions(),
            *report_new_results(
                tick.tidemark.tables, transforms.values(), runs, memory.current, names
            ),
        ]
        memory.ledger = ledger or memory.ledger
        memory.heard &= {r["run"] for r in runs}
        memory.current = {a: seen for a, seen in memory.current.items() if a in transforms}
        return PartResult(_describe(reporter.reported), events, memory.as_json())

    return SensorPart("partitions", report)


@dataclass
class _Memory:
    """The state that a tick passes to the next one.

    Args:
        ledger: the ID of the ledger.
        since: the end of the newest run; all runs that ended earlier are reported.
        marks: how far the runs of each asset are reported.
        heard: the IDs of runs of Dagster steps that are known to be reported completely.
        fresh: whether each asset was fresh at the last report.
        quarantine: the version of each asset's quarantine table.
        current: the last definition, run and message of the check `definition_is_current`, by
            asset.
        compared: the last comparison that was reported.
    """

    ledger: str | None = None
    since: int = 0
    marks: dict[str, ReportPosition] = field(default_factory=dict[str, ReportPosition])
    heard: set[str] = field(default_factory=set[str])
    fresh: dict[str, bool] = field(default_factory=dict[str, bool])
    quarantine: dict[str, int | None] = field(default_factory=dict[str, int | None])
    current: dict[str, list[str | None]] = field(default_factory=dict[str, list[str | None]])
    compared: ReportedComparisons = (None, -1)

    @classmethod
    def read(cls, cursor: Mapping[str, Any], ledger: str | None) -> "_Memory":
        """Read the state from a cursor.

        If the cursor refers to another ledger, such as that of another database, drop all parts
        that depend on the ledger: the runs of the current ledger may all have ended before `since`.
        """
        if not cursor:
            return cls()
        record, number = cursor["compared"]
        if ledger is not None and cursor["ledger"] not in (None, ledger):
            return cls(compared=(record, number))
        parts: dict[str, Any] = {
            **cursor,
            "marks": {a: ReportPosition(**m) for a, m in cursor["marks"].items()},
            "heard": set(cursor["heard"]),
            "compared": (record, number),
        }
        return cls(**parts)

    def as_json(self) -> dict[str, Any]:
        """Return the memory for a cursor."""
        return asdict(self) | {"heard": sorted(self.heard)}


@dataclass
class _Reporter:
    """The work of one tick: create the reports, and update the memory for the next tick.

    Args:
        runs: the new rows of the ledger, and some earlier ones.
        reported: the number of partitions that this tick reports, by asset.
        validated: the assets whose checks this tick reports.
    """

    tick: Tick
    names: Names
    transforms: Mapping[str, Definition]
    partitions: PartitionsOf
    snapshot: Snapshot
    memory: _Memory
    runs: Sequence[Mapping[str, Any]]
    reported: Counter[str] = field(default_factory=Counter[str])
    validated: set[str] = field(default_factory=set[str])

    @property
    def room(self) -> int:
        """How many partitions the tick can still report."""
        return MAX_PARTITIONS_PER_TICK - self.reported.total()

    def report_new_runs(self) -> Iterator[AssetEvent]:
        """Yield the reports of new runs that do not report themselves."""
        marks = self.memory.marks
        for name, transform in self.transforms.items():
            before = marks.get(name, ReportPosition())
            if before.table_id != (table_id := self.snapshot.table_id(name)):
                # A recreated asset is reported from the start.
                before = ReportPosition(table_id=table_id or "")
            asset_runs = [
                r
                for r in self.runs
                if r["asset"] == name and before.commit_number < r["commit_number"] <= before.until
            ]
            if not asset_runs or self.room <= 0:
                continue
            legs, mark = unreported_commits(asset_runs, before.watermark)
            after = ReportPosition(asset_runs[-1]["commit_number"], mark, table_id=before.table_id)
            fresh = [r for r in asset_runs if not r["reported"]]
            if fresh:
                closed = closed_partitions(self.snapshot, transform, self.partitions(name), legs)
                touched = [t for t in closed if t.start > before.done]
                shown = touched[: self.room]
                if len(shown) < len(touched):
                    after = replace(before, until=after.commit_number, done=shown[-1].start)
                yield from self._report(
                    transform, shown, fresh[-1], complete=len(shown) == len(touched)
                )
                self.validated.add(name)
                self.reported[name] = len(shown)
            marks[name] = after

    def report_overdue_runs(self) -> Iterator[AssetEvent]:
        """Yield the reports of runs that their own steps should have reported by now."""
        memory = self.memory
        own_runs = [r for r in self.runs if r["asset"] in self.transforms]
        overdue = _overdue_runs(own_runs, memory.heard)
        for run in overdue[:MAX_SEARCHED_RUNS]:
            if (room := self.room) <= 0:
                break
            transform = self.transforms[run["asset"]]
            left = _unreported_partitions(
                self.tick.context.instance,
                self.names,
                self.snapshot,
                transform,
                self.partitions(transform.name),
                run,
            )
            if left:
                yield from self._report(transform, left[:room], run, UNREPORTED_RUN)
                self.reported[transform.name] += len(left[:room])
            if len(left) <= room:
                memory.heard.add(run["run"])
        # The position only advances if nothing is left to report.
        if self.room > 0 and len(overdue) <= MAX_SEARCHED_RUNS:
            memory.since = max([memory.since, *(r["ended_at"] for r in self.runs)])

    def report_freshness(self, within: int) -> Iterator[AssetEvent]:
        """Yield the result of the freshness check of each asset, if the result has changed.

        Args:
            within: how far the watermark may be behind the newest event, in microseconds.
        """
        sources = {t.source.name for t in self.transforms.values()}
        newest = {source: self.snapshot.newest_event(source) for source in sources}
        for name, mark in self.memory.marks.items():
            if name not in self.transforms or mark.watermark is None:
                continue
            transform = self.transforms[name]
            key = self.names.key(transform.published_table)
            result = freshness(key, newest[transform.source.name], mark.watermark, within)
            if self.memory.fresh.get(name) != result.passed:
                yield result
            self.memory.fresh[name] = result.passed

    def report_decisions(self) -> Iterator[AssetEvent]:
        """Yield the current check results of each asset whose quarantine has changed.

        Assets whose checks this tick has already reported are left out. The quarantine of the
        others has changed because a person released or discarded windows, or because of a run that
        a Dagster step reports.
        """
        before = self.memory.quarantine
        self.memory.quarantine = {
            name: self.snapshot.tables.newest_version(transform.quarantine_table)
            for name, transform in self.transforms.items()
            if transform.all_expectations
        }
        for name, version in self.memory.quarantine.items():
            if name not in self.validated and before.get(name) != version:
                transform = self.transforms[name]
                yield from checks.current_results(self.names, self.snapshot, transform)

    def _report(
        self,
        transform: Definition,
        touched: list[ChangedPartition],
        run: Mapping[str, Any],
        made_by: str | None = None,
        *,
        complete: bool = True,
    ) -> Iterator[AssetEvent]:
        """Yield the partitions that a run changed, and then the results of the asset's checks.

        Args:
            complete: false if a later tick reports further partitions. The checks are then left
                out.
        """
        tables = self.tick.tidemark.tables
        definition = find_definition(tables, transform)
        together = {t.published_table for t in self.transforms.values()}
        yield from reports(
            self.tick.context,
            self.names,
            tables,
            transform,
            definition,
            touched,
            run,
            made_by,
            together,
        )
        if complete:
            yield from checks.current_results(self.names, self.snapshot, transform)


def _describe(reported: Mapping[str, int]) -> str:
    if not reported:
        return "No new runs except those that report themselves."
    return "; ".join(f"{asset}: {count} partitions reported" for asset, count in reported.items())


def _overdue_runs(
    runs: Sequence[Mapping[str, Any]], heard: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return the runs that their steps have not reported within `REPORT_TIMEOUT_MICROS`."""
    current_time = time.time_ns() // 1000
    return [
        r
        for r in runs
        if r["reported"]
        and r["run"] not in heard
        and is_wait_over(REPORT_TIMEOUT_MICROS, r["ended_at"], current_time)
    ]


def _unreported_partitions(
    instance: dg.DagsterInstance,
    names: Names,
    snapshot: Snapshot,
    transform: Definition,
    partitions: dg.TimeWindowPartitionsDefinition,
    run: Mapping[str, Any],
) -> list[ChangedPartition]:
    """Return the closed partitions that a run changed and that Dagster's event log lacks."""
    touched = list(
        closed_partitions(snapshot, transform, partitions, [as_commit_range(snapshot, run)])
    )
    records_filter = dg.AssetRecordsFilter(
        asset_key=names.key(transform.published_table),
        asset_partitions=[t.key for t in touched],
        after_timestamp=run["started_at"] / 1e6,
    )
    reported = set[str | None]()
    cursor = None
    more = bool(touched)
    while more:
        page = instance.fetch_materializations(records_filter, limit=_PAGE, cursor=cursor)
        reported |= {r.partition_key for r in page.records if _run_of(r) == run["run"]}
        cursor = page.cursor
        more = page.has_more
    return [t for t in touched if t.key not in reported]


def _run_of(record: dg.EventLogRecord) -> object:
    """Return the ID, in the ledger, of the run that a materialization reports; None without ID."""
    said = record.asset_materialization
    run_value = said.metadata.get(RUN) if said is not None else None
    return run_value.value if run_value is not None else None
