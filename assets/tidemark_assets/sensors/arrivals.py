"""The sensor that reacts to new data and arrivals, and the jobs that it launches.

The sensor `<domain>_arrivals` has a part for each source, and one for the domain's assets:

- The part of a source finds pending files or Kafka records, and launches an ingest of the source.
  If the source is blocked, the part does so only if the cause may have been fixed
  (`ingest_attempts`).
- The part `windows` finds arrivals that an asset has not processed, and runs of a base that its
  roll-up has not followed. It launches an incremental run, except for assets that a stream keeps up
  to date. It does not rely on the ingests of this sensor: arrivals may also be ingested in other
  ways (`tidemark ingest`, a recording).

A tick reads files and small tables in its own process; it neither uses nor starts an engine.
"""

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256

import dagster as dg

from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.run import runner as run
from tidemark.store.ledger import RunFacts
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.base.spans import PartitionsOf
from tidemark_assets.base.steps import of_assets
from tidemark_assets.jobs.step_job import Step, for_each_asset, step_job
from tidemark_assets.sensors.frame import (
    PartResult,
    SensorJob,
    SensorPart,
    Tick,
    create_sensor,
    is_running,
    unfinished_runs,
)
from tidemark_assets.sensors.ingest_attempts import current_attempt, read_attempt
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.home.orchestrator import catch_up
from tidemark_streaming.ingest import ingest_record
from tidemark_streaming.ingest.ingest import in_warehouse
from tidemark_streaming.ingest.ingest_record import blocking_error
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import desired_streams

RETRY_AFTER_SECONDS = 300
"""Seconds after which a failed ingest is launched again, even if nothing new has arrived."""

RUN_KEY = "dagster/run_key"
_IN_VAIN = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def arrivals(
    domain: str,
    ingestions: Iterable[Ingestion],
    transforms: Mapping[str, Definition],
    partitions: PartitionsOf,
    names: Names = PLAIN,
) -> dg.Definitions:
    """Create the sensor that ingests pending data and updates windows, and the jobs for both."""
    parts = list[SensorPart]()
    jobs = list[SensorJob]()
    sources = list(ingestions)
    if sources:
        job = names.own(f"{domain}_ingest")
        log_keys = [names.key(ingestion.source.log_table) for ingestion in sources]
        ingest = dg.define_asset_job(
            job,
            selection=dg.AssetSelection.assets(*log_keys),
            description="Ingests the pending data of sources into their event logs.",
        )
        jobs.append(ingest)
        for ingestion in sources:
            parts.append(_ingest_part(ingestion, job, names))
    if transforms:
        catching_up = _catch_up(domain, transforms, partitions, names)
        jobs.append(catching_up)
        parts.append(_windows_part(domain, transforms, catching_up.name, names))
    description = (
        "Ingests new data of each source, one run per source. Updates the windows if new arrivals "
        "exist: one incremental run for all assets that are behind and that no stream keeps up to "
        "date. The cursor stores, for each asset, the arrival for which it was last launched (for "
        "a roll-up, the run of its base) and the state of its tables at that time."
    )
    sensor = create_sensor(
        names, f"{domain}_arrivals", description, parts, jobs=jobs, runs_by_default=False
    )
    return dg.Definitions(sensors=[sensor], jobs=jobs)


def _ingest_part(ingestion: Ingestion, job: str, names: Names) -> SensorPart:
    """Return the part that launches an ingest of a source if data is pending."""
    source = ingestion.source
    name = source.name
    log_key = names.key(source.log_table)

    def evaluate(tick: Tick) -> PartResult:
        instance = tick.context.instance
        tidemark = tick.tidemark
        ingest_record.record_poll(tidemark.settings, name)
        snapshot = tidemark.snapshot()
        timeline = snapshot.read_timeline(name)
        settings = tidemark.settings
        connector = ingestion.connector(tidemark.landing(source))
        connector = in_warehouse(connector, settings.warehouse, settings.database)
        pending = connector.list_pending(timeline)
        if not pending:
            return PartResult(f"No new data is pending for '{name}'.", memory=tick.memory)
        if _is_ingesting(instance, job, log_key):
            return PartResult(f"An ingest of '{name}' is already running.", memory=tick.memory)
        attempt = current_attempt(connector, pending, time.time_ns() // 1000)
        last = read_attempt(tick.memory)
        # The number of arrivals is part of the key, because an arrival may advance only the time
        # and leave the position as it was.
        which = _identify_tables(
            tidemark.settings.database, snapshot.tables.table_id(source.timeline_table)
        )
        key = f"{name} {which} {len(timeline)} {pending[-1].position}"
        if (refused := blocking_error(tidemark.settings, name)) is not None:
            if last is not None and last.still_applies(attempt, timeline):
                message = (
                    f"'{name}' is blocked: {refused} The sensor continues once the pending files "
                    "or the definition have been fixed. For any other cause it retries once a "
                    f"day, or immediately after you materialize {source.log_table} successfully."
                )
                return PartResult(message, memory=tick.memory)
            # The daemon launches a run key only once. Without the digest, the key would be the same
            # as before if the same arrivals are pending.
            key = f"{key} {attempt.digest()}"
        else:
            while (ended := _find_failed_run(instance, job, key)) is not None:
                run_id, ended_at = ended
                if 0 <= time.time() - ended_at < RETRY_AFTER_SECONDS:
                    message = (
                        f"Run {run_id[:8]} of {job} did not ingest the pending data of '{name}': "
                        "see its run page for the reason. It is launched again "
                        f"{RETRY_AFTER_SECONDS // 60} minutes after it ended."
                    )
                    return PartResult(message, memory=tick.memory)
                key = f"{key} {run_id[:8]}"
        request = dg.RunRequest(run_key=key, job_name=job, asset_selection=[log_key])
        return PartResult(
            f"Launches an ingest of '{name}'.", memory=attempt.to_memory(), requests=[request]
        )

    return SensorPart(f"{name}_ingest", evaluate)


def _windows_part(
    domain: str, transforms: Mapping[str, Definition], job: str, names: Names
) -> SensorPart:
    """Return the part that launches one incremental run of all assets that are behind."""
    increments = names.own(f"{domain}_increments")

    def evaluate(tick: Tick) -> PartResult:
        launched: dict[str, object] = tick.memory or {}
        behind = _find_assets_behind(tick.tidemark, transforms)
        if not behind:
            return PartResult("All windows are up to date with the event log.", memory=launched)
        if is_running(tick.context.instance, job):
            message = f"A run of {job} is already active. Waiting for it: {_list(behind)}."
            return PartResult(message, memory=launched)
        fresh = {a: state for a, state in behind.items() if launched.get(a) != state}
        if not fresh:
            message = (
                f"The run for {_list(behind)} did not bring them up to date. See its run page for "
                "the reason and re-execute it there; the next arrival launches another one."
            )
            return PartResult(message, memory=launched)
        request = dg.RunRequest(
            run_key=" ".join(f"{asset}:{state}" for asset, state in fresh.items()),
            job_name=job,
            run_config={"ops": {increments: {"config": {"assets": list(fresh)}}}},
        )
        message = f"Launches a run for {_list(fresh)}."
        return PartResult(message, memory=launched | fresh, requests=[request])

    return SensorPart("windows", evaluate)


def _find_assets_behind(
    tidemark: TidemarkResource, transforms: Mapping[str, Definition]
) -> dict[str, str]:
    """Return the assets that lack arrivals and that no stream updates, each with an identifier of
    the newest arrival and of the tables.
    """
    snapshot = tidemark.snapshot()
    database = tidemark.settings.database
    streamed = desired_streams.read_all(tidemark.settings)
    behind: dict[str, str] = {}
    counted = (t for t in transforms.values() if t.rolled_up_name is None)
    for source, assets in _assets_by_source(counted).items():
        newest = snapshot.newest_arrival(source)
        late = snapshot.assets_behind((a for a in assets if a not in streamed), newest)
        # Heartbeats need a run only if they change a window.
        late = [a for a in late if not snapshot.can_wait(transforms[a])]
        if newest < 0 or not late:
            continue
        timeline_id = snapshot.tables.table_id(f"{source}_timeline")
        runs = snapshot.count_runs(late)
        for asset in late:
            which = _identify_tables(database, timeline_id, snapshot.table_id(asset), runs[asset])
            behind[asset] = f"{newest} {which}"
    # A roll-up usually runs with its base. The roll-ups found here are those whose run failed,
    # or whose base ran without them.
    rolled = (t for t in transforms.values() if t.name not in streamed)
    bases = {t.name: t.rolled_up_name for t in rolled if t.rolled_up_name is not None}
    return behind | _unfollowed_rollups(snapshot, database, bases)


def _catch_up(
    domain: str, transforms: Mapping[str, Definition], partitions: PartitionsOf, names: Names
) -> dg.JobDefinition:
    """Return the job of incremental runs: each asset processes its new arrivals."""

    class CatchUpConfig(of_assets(domain, transforms)):
        """The assets to bring up to date."""

    def work(step: Step[CatchUpConfig], transform: Definition) -> RunFacts | None:
        facts = run.incremental(step.tidemark.warehouse, transform, reported=True)
        if facts is not None:
            step.log_run(transform, partitions(transform.name), facts)
        return facts

    def describe(results: Mapping[str, RunFacts | None]) -> dict[str, dg.TableMetadataValue]:
        return {"runs": _table(results)}

    def choose(step: Step[CatchUpConfig]) -> list[str]:
        return _in_order(step.config.assets, transforms)

    return step_job(
        names,
        catch_up(domain),
        f"{domain}_increments",
        "Processes new arrivals as a stream would: one incremental run of each asset, then of its "
        "roll-ups. Partitions that the run closes, or changes after they closed, are reported as "
        "materialized by it.",
        CatchUpConfig,
        for_each_asset(transforms, work, describe, choose),
    )


def _in_order(assets: list[str], transforms: Mapping[str, Definition]) -> list[str]:
    """Return the assets and all their roll-ups. All roll-ups are at the end."""
    following = [
        name
        for name, t in transforms.items()
        if t.rolled_up_name is not None and (name in assets or t.rolled_up_name in assets)
    ]
    return [*(a for a in assets if a not in following), *following]


def _assets_by_source(transforms: Iterable[Definition]) -> dict[str, list[str]]:
    by_source: dict[str, list[str]] = {}
    for transform in transforms:
        by_source.setdefault(transform.source.name, []).append(transform.name)
    return by_source


def _unfollowed_rollups(
    snapshot: Snapshot, database: str, bases: Mapping[str, str]
) -> dict[str, str]:
    """Return the roll-ups that have not followed all runs of their base, each with an identifier of
    the base's newest run.
    """
    due = snapshot.unfollowed_rollups(bases)
    runs = snapshot.count_runs(due)
    unfollowed = dict[str, str]()
    for name, commit_number in due.items():
        which = _identify_tables(
            database, snapshot.table_id(bases[name]), snapshot.tables.table_id(name), runs[name]
        )
        unfollowed[name] = f"{commit_number} {which}"
    return unfollowed


def _identify_tables(*identities: str | int | None) -> str:
    """Return an identifier of tables and their runs, for a run key.

    The daemon launches a run key only once, but the same arrival number can need another run:
    recreated tables and other databases number their arrivals from 0 again, and an asset may have
    been rolled back to an earlier state.
    """
    return sha256(json.dumps(identities).encode()).hexdigest()[:8]


def _is_ingesting(instance: dg.DagsterInstance, job: str, log_key: dg.AssetKey) -> bool:
    """Return whether a queued or running run ingests into a log. Users may launch it, too."""
    for unfinished in unfinished_runs(instance):
        if unfinished.asset_selection is None:
            if unfinished.job_name == job:
                return True
        elif log_key in unfinished.asset_selection:
            return True
    return False


def _find_failed_run(instance: dg.DagsterInstance, job: str, key: str) -> tuple[str, float] | None:
    """Return the ID of the failed or canceled run of a run key, and its end in Unix seconds.

    Return None if there is none. If the process of a run was killed, only Dagster records this.
    """
    of_key = dg.RunsFilter(job_name=job, tags={RUN_KEY: key}, statuses=_IN_VAIN)
    for record in instance.get_run_records(of_key, limit=1):
        ended = record.end_time or record.update_timestamp.timestamp()
        return record.dagster_run.run_id, ended
    return None


def _list(assets: Iterable[str]) -> str:
    return ", ".join(assets)


def _table(results: Mapping[str, RunFacts | None]) -> dg.TableMetadataValue:
    columns = (
        "asset",
        "arrivals",
        "events",
        "windows",
        "late",
        "too late",
        "watermark",
        "seconds",
    )
    rows = list[tuple[object, ...]]()
    for asset, facts in results.items():
        if facts is None:
            rows.append((asset, "no new arrivals"))
            continue
        rows.append(
            (
                asset,
                f"{facts.from_arrival + 1} to {facts.through_arrival}",
                facts.events,
                facts.windows,
                facts.late,
                facts.too_late,
                format_instant(facts.watermark) or "-infinity",
                f"{facts.seconds:.1f}",
            )
        )
    return as_table(columns, rows)
