"""Sensors that react to new files and arrivals, and the jobs that they launch.

`<source>_landing` finds pending files or Kafka records of a source's connector and launches the
source's ingest. If the source is blocked, the sensor does so only if the cause may have been fixed
(`ingest_attempts`). `<domain>_arrivals` finds arrivals that an asset has not processed, and
runs of a base that its roll-up has not followed. It launches an incremental run, except for assets
that a stream keeps up to date. There are two sensors because arrivals may also be ingested in other
ways (`tidemark ingest`, a recording), and because a user may want only one of the sensors.

A tick reads files and small tables in its own process; it neither uses nor starts an engine.
"""

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.run import runner as run
from tidemark.store.ledger import RunFacts
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.spans import PartitionsOf
from tidemark_assets.base.steps import of_assets
from tidemark_assets.jobs.step_job import Step, asset_job
from tidemark_assets.sensors.frame import create_sensor, is_running
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


def landing(ingestion: Ingestion, names: Names = PLAIN) -> dg.Definitions:
    """Create the sensor that launches a source's ingest if data is pending, and the ingest job."""
    source = ingestion.source
    name, job = source.name, names.own(f"{source.name}_ingest")

    def evaluate(context: SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        tidemark = names.tidemark(context)
        ingest_record.record_poll(tidemark.settings, name)
        snapshot = tidemark.snapshot()
        timeline = snapshot.read_timeline(name)
        settings = tidemark.settings
        connector = ingestion.connector(tidemark.landing(source))
        connector = in_warehouse(connector, settings.warehouse, settings.database)
        pending = connector.list_pending(timeline)
        if not pending:
            return dg.SkipReason(f"No new data is pending for '{name}'.")
        if is_running(context.instance, job):
            return dg.SkipReason(f"An ingest of '{name}' is already running.")
        attempt = current_attempt(connector, pending, time.time_ns() // 1000)
        last = read_attempt(context.cursor)
        # The number of arrivals is part of the key, because an arrival may advance only the time
        # and leave the position as it was.
        which = _identify_tables(
            tidemark.settings.database, snapshot.tables.table_id(source.timeline_table)
        )
        key = f"{name} {which} {len(timeline)} {pending[-1].position}"
        if (refused := blocking_error(tidemark.settings, name)) is not None:
            if last is not None and last.still_applies(attempt, timeline):
                return dg.SkipReason(
                    f"'{name}' is blocked: {refused} The sensor continues once the pending files "
                    "or the definition have been fixed. For any other cause it retries once a "
                    f"day, or immediately after a successful manual launch of {job}."
                )
            # The daemon launches a run key only once. Without the digest, the key would be the same
            # as before if the same arrivals are pending.
            key = f"{key} {attempt.digest()}"
        else:
            while (ended := _find_failed_run(context.instance, job, key)) is not None:
                run_id, ended_at = ended
                if 0 <= time.time() - ended_at < RETRY_AFTER_SECONDS:
                    return dg.SkipReason(
                        f"Run {run_id[:8]} of {job} did not ingest the pending data: see its run "
                        "page for the reason. It is launched again "
                        f"{RETRY_AFTER_SECONDS // 60} minutes after it ended."
                    )
                key = f"{key} {run_id[:8]}"
        context.update_cursor(attempt.to_cursor())
        return dg.RunRequest(run_key=key)

    description = f"Starts one ingest run of {name} if new data is pending."
    sensor = create_sensor(names, f"{name}_landing", description, evaluate, job=job)
    ingest = dg.define_asset_job(
        job,
        selection=dg.AssetSelection.assets(names.key(source.log_table)),
        description=f"Ingests the pending data of {name} into its event log.",
    )
    return dg.Definitions(sensors=[sensor], jobs=[ingest])


def arrivals(
    domain: str,
    transforms: Mapping[str, Definition],
    partitions: PartitionsOf,
    names: Names = PLAIN,
) -> dg.Definitions:
    """Create the sensor that launches one incremental run of all assets with new arrivals, and the
    job of that run."""
    job = names.own(catch_up(domain))
    increments = names.own(f"{domain}_increments")

    def evaluate(context: SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tidemark = names.tidemark(context)
        snapshot = tidemark.snapshot()
        streamed = desired_streams.read_all(tidemark.settings)
        launched: dict[str, object] = json.loads(context.cursor or "{}")
        behind: dict[str, str] = {}
        counted = (t for t in transforms.values() if t.rolled_up_name is None)
        for source, assets in _assets_by_source(counted).items():
            newest = snapshot.newest_arrival(source)
            late = snapshot.assets_behind((a for a in assets if a not in streamed), newest)
            # Heartbeats need a run only if they change a window.
            late = [a for a in late if not snapshot.can_wait(transforms[a])]
            if newest < 0 or not late:
                continue
            database_id = tidemark.settings.database, snapshot.tables.table_id(f"{source}_timeline")
            runs = snapshot.count_runs(late)
            behind |= {
                a: f"{newest} {_identify_tables(*database_id, snapshot.table_id(a), runs[a])}"
                for a in late
            }
        # A roll-up usually runs with its base. The roll-ups found here are those whose run failed,
        # or whose base ran without them.
        rolled = (t for t in transforms.values() if t.name not in streamed)
        bases = {t.name: t.rolled_up_name for t in rolled if t.rolled_up_name is not None}
        behind |= _unfollowed_rollups(snapshot, tidemark.settings.database, bases)
        if not behind:
            return dg.SkipReason("All windows are up to date with the event log.")
        if is_running(context.instance, job):
            return dg.SkipReason(
                f"A run of {job} is already active. Waiting for it: {_list(behind)}."
            )
        fresh = {a: state for a, state in behind.items() if launched.get(a) != state}
        if not fresh:
            return dg.SkipReason(
                f"The run for {_list(behind)} did not bring them up to date. See its run page for "
                "the reason and re-execute it there; the next arrival launches another one."
            )
        request = dg.RunRequest(
            run_key=" ".join(f"{asset}:{state}" for asset, state in fresh.items()),
            run_config={"ops": {increments: {"config": {"assets": list(fresh)}}}},
        )
        return dg.SensorResult([request], cursor=json.dumps(launched | fresh))

    description = (
        "Updates the windows when new arrivals exist: one incremental run for all assets that "
        "are behind and that no stream keeps up to date. The cursor stores, for each asset, "
        "the arrival for which it was last launched (for a roll-up, the run of its base) and "
        "the state of its tables at that time."
    )
    sensor = create_sensor(names, f"{domain}_arrivals", description, evaluate, job=job)
    caught = _catch_up(domain, transforms, partitions, names)
    return dg.Definitions(sensors=[sensor], jobs=[caught])


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

    return asset_job(
        names,
        catch_up(domain),
        f"{domain}_increments",
        "Processes new arrivals as a stream would: one incremental run of each asset, then of its "
        "roll-ups. Partitions that the run closes, or changes after they closed, are reported as "
        "materialized by it.",
        CatchUpConfig,
        transforms,
        work,
        lambda results: {"runs": _table(results)},
        choose=lambda step: _in_order(step.config.assets, transforms),
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
