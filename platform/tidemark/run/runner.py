"""Runs: the only functions that execute a transform.

A run processes a range of arrivals, counts their events in the state, and publishes the windows
that fired.

| run | processes |
| --- | --- |
| incremental | the arrivals since the last run; a continuous query repeats this |
| backfill | all arrivals so far, for a range of windows, which it replaces |
| replay | the windows with events of some arrivals, which it replaces |
| correction | the windows that lack too-late events, which it replaces |
| erasure | the windows whose events were erased, which it replaces |

Each kind of run is safe to repeat, to kill at any point, and to run concurrently with the others,
on any machine. A run that may have read erased events can't commit, and starts again
(`store.epoch`).

Every run passes through the same modules: `plan` decides what to do, and `execution` does it:
`compute` computes the rows, the gate of `quality` validates them, and `commit` writes them. A run
first publishes the commits that earlier runs did not completely publish.
"""

import random
import time
from collections.abc import Callable
from dataclasses import asdict

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from tidemark.base import telemetry
from tidemark.base.errors import ConflictError, DefinitionError, TidemarkError
from tidemark.compute.windowing import check_analysis
from tidemark.define.definition import Definition
from tidemark.engine.failures import translate_failures
from tidemark.quality import results
from tidemark.run import plan, rebase, swap, takeover
from tidemark.run.admission import Admission
from tidemark.run.correction import Correction, list_changes
from tidemark.run.execution import execute_plan, store_replacement
from tidemark.run.plan import Plan
from tidemark.store import ledger, lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import Following, Increment, TableSwap
from tidemark.store.commits.ranges import Ranges
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals
from tidemark.store.integrity import table_check
from tidemark.store.ledger import RunFacts
from tidemark.store.upkeep import checkpoints
from tidemark.store.warehouse import Warehouse

MAX_LISTED_CHANGES = 1000
"""Default maximum number of a correction's changes that are listed."""

_TAKES = (Increment().mode, Following().mode)
"""Modes of the runs that process new arrivals. All other runs recompute existing windows."""

_Planner = Callable[[Asset, StateCommit], Plan | None]


def incremental(
    warehouse: Warehouse,
    definition: Definition,
    *,
    last_arrival: int | None = None,
    limit: int | Admission | None = None,
    recent: RecentArrivals = NO_ARRIVALS,
    pinned_definition: bool = False,
    reported: bool = False,
) -> RunFacts | None:
    """Process the arrivals since the asset's last run, and publish the windows that they fire.

    Args:
        last_arrival: the last arrival to process; all arrivals by default.
        limit: limits of the run; a number limits the arrivals.
        recent: arrivals that the caller has in memory. If they continue directly from the asset's
            last run, the run processes only these.
        pinned_definition: true if this very definition has run the asset before. The run is then
            refused if another definition has run the asset since.
        reported: true if the caller reports the run to the orchestrator.

    Returns:
        The run's facts, or None if there was nothing to do. The caller must report the run if the
        field `reported` is true; it is false if another run finished this one.

    Raises:
        DataError: the source was never ingested.
        ConflictError: other runs of the asset kept committing first.
        DefinitionChangedError: `pinned_definition` is true, and another definition has run the
            asset since.
        StaleError: the asset's source has another history, or the definition has changed and is
            incompatible with the stored data.
    """
    admission = Admission.from_limit(limit)
    if definition.rolled_up_name is not None and (last_arrival is not None or admission):
        raise DefinitionError(
            f"'{definition.name}' is a roll-up of '{definition.rolled_up_name}', so its runs can't "
            "be "
            f"limited: limit the runs of '{definition.rolled_up_name}' instead."
        )

    def make_plan(asset: Asset, newest_commit: StateCommit) -> Plan | None:
        return plan.plan_increment(asset, newest_commit, last_arrival, admission, recent.arrivals)

    return _run_until_committed(
        warehouse,
        definition,
        make_plan,
        recent=recent,
        reported=reported,
        pinned_definition=pinned_definition,
    )


def backfill(
    warehouse: Warehouse,
    definition: Definition,
    start: int | None = None,
    end: int | None = None,
    *,
    late_events: str = "exclude",
    reported: bool = False,
) -> RunFacts:
    """Recompute windows from all arrivals so far, and replace them in one commit per table.

    Args:
        start, end: the windows that start in [start, end), in microseconds, are recomputed; by
            default, all windows. For sessions, there are two cases. If some sessions can be
            recomputed without the others (`plan.can_recompute_in_part`), new arrivals are processed
            first. Then the sessions with events in the range are recomputed, and the sessions that
            touch one of these. If not, all sessions are recomputed.
        late_events: `exclude` leaves out too-late events, as a stream does; `include` counts them.
        reported: true if the caller reports the run to the orchestrator.

    Raises:
        DefinitionError: `late_events` is unknown, only one bound is given, or the range is empty;
            or the asset is a roll-up, which follows the backfills of its base.
        DataError: the source was never ingested, or has no arrival yet.
        ConflictError: other runs of the asset kept committing first.
    """
    refuse_rollup(definition, "backfill")
    if late_events not in ("exclude", "include"):
        raise DefinitionError(f"late_events must be 'exclude' or 'include' (got '{late_events}').")
    if (start is None) != (end is None) or (start is not None and end is not None and end <= start):
        raise DefinitionError(
            "A backfill's range must have both a start and a later end, or neither."
        )
    if start is not None and definition.window.merges:
        asset = Asset(warehouse, definition)
        if plan.can_recompute_in_part(asset, asset.state.read_last_commit()):
            incremental(warehouse, definition)
    facts = _run_until_committed(
        warehouse,
        definition,
        lambda asset, last: plan.plan_backfill(asset, last, start, end, late_events),
        reported=reported,
        full_refresh=start is None,
    )
    assert facts is not None
    return facts


def replay(
    warehouse: Warehouse, definition: Definition, first_arrival: int, *, into_empty: bool = False
) -> RunFacts | None:
    """Recompute and replace the windows that hold an event of an arrival or of a later one.

    The module `run.change.replay` explains the rules.

    Args:
        into_empty: true if the asset has not run yet, and is to have only these windows.

    Returns:
        The run's facts, or None if these arrivals have no event in a window.
    """
    refuse_rollup(definition, "replay")
    if not into_empty:
        incremental(warehouse, definition)
    return _run_until_committed(
        warehouse,
        definition,
        lambda asset, last: plan.plan_replay(asset, last, first_arrival, into_empty=into_empty),
    )


def correct(
    warehouse: Warehouse,
    definition: Definition,
    *,
    max_listed: int = MAX_LISTED_CHANGES,
    reported: bool = False,
) -> Correction | None:
    """Replace the windows that lack too-late events by windows that include these events.

    Args:
        max_listed: maximum number of changes to list.
        reported: true if the caller reports the run to the orchestrator.

    Returns:
        The changes, or None if no window lacks an event.

    Raises:
        DefinitionError: the asset is a roll-up, which follows the corrections of its base.
        ConflictError: other runs of the asset kept committing first.
    """
    refuse_rollup(definition, "correct")
    version_before = -1

    def make_plan(asset: Asset, newest_commit: StateCommit) -> Plan | None:
        nonlocal version_before
        version_before = warehouse.newest_version(definition.published_table)
        return plan.plan_correction(asset, newest_commit)

    facts = _run_until_committed(warehouse, definition, make_plan, reported=reported)
    if facts is None:
        return None
    return list_changes(warehouse, definition, facts, version_before, max_listed)


def recompute_erased(warehouse: Warehouse, definition: Definition, ranges: Ranges) -> RunFacts:
    """Recompute and replace windows whose events were erased from the log (`run.erase.erase`).

    Args:
        ranges: ranges of window starts; without any range, all windows.
    """
    facts = _run_until_committed(
        warehouse, definition, lambda asset, last: plan.plan_erasure(asset, last, ranges)
    )
    assert facts is not None
    return facts


def refuse_rollup(definition: Definition, verb: str) -> None:
    """Raise an error if an asset is a roll-up, which does not have its own state.

    Args:
        verb: what the message recommends to do with the roll-up's base instead, such as `rebuild`.
    """
    if definition.rolled_up_name is not None:
        raise DefinitionError(
            f"'{definition.name}' is a roll-up of '{definition.rolled_up_name}': {verb} "
            f"'{definition.rolled_up_name}', then run '{definition.name}'."
        )


def _run_until_committed(
    warehouse: Warehouse,
    definition: Definition,
    planner: _Planner,
    *,
    recent: RecentArrivals = NO_ARRIVALS,
    reported: bool = False,
    full_refresh: bool = False,
    pinned_definition: bool = False,
) -> RunFacts | None:
    """Plan and execute a run, and retry after a commit conflict with another run.

    Args:
        planner: returns the run's plan, given the asset and the newest commit of its state.
        full_refresh: true if the run replaces everything that is stored.
    """
    conflicts = rebase.Conflicts(definition.name)
    while True:
        table_check.demand_intact(warehouse, definition.source, definition)
        asset = Asset(warehouse, definition, recent=recent)
        try:
            with warehouse.catalog.registering_in_background(), translate_failures(definition.name):
                newest_commit = asset.state.read_last_commit()
                if (
                    isinstance(newest_commit, TableSwap)
                    and not asset.rolls_up
                    and asset.published_commit_number() < newest_commit.commit_number
                ):
                    # Finishing a swap needs no definition, so it comes before the check of the
                    # definition.
                    swap.finish_swap(asset, newest_commit)
                if full_refresh:
                    _leave_earlier_history(asset, newest_commit)
                else:
                    takeover.check_definition(
                        asset, newest_commit, pinned_definition=pinned_definition
                    )
                if asset.rolls_up:
                    takeover.renew_rollup(asset, pinned_definition=pinned_definition)
                facts = _run_once(
                    asset,
                    newest_commit,
                    planner,
                    conflicts,
                    reported=reported,
                    full_refresh=full_refresh,
                )
                if facts is not None:
                    _send_span(asset, facts)
                return facts
        except (TidemarkError, DeltaError, PySparkException) as error:
            # An erasure may have deleted tables that the run needs.
            if not isinstance(error, ConflictError) and asset.is_current():
                raise
            conflicts.count_conflict()
            time.sleep(random.uniform(0, min(5.0, 0.1 * 2**conflicts.count)))


def _leave_earlier_history(asset: Asset, newest_commit: StateCommit) -> None:
    """Remove the checkpoint of an asset's stream if it refers to an earlier history of the log."""
    if lineage.is_of_another_log(asset, newest_commit):
        checkpoints.remove_checkpoint(asset.warehouse, asset.transform.name)


def republish_commit(asset: Asset, commit_info: StateCommit) -> None:
    """Publish a state commit again. Tables that already have the commit stay as they are."""
    execute_plan(asset, Plan(commit_info, few=True, stored=True, taken_up=True), reported=False)


def _run_once(
    asset: Asset,
    newest_commit: StateCommit,
    planner: _Planner,
    conflicts: rebase.Conflicts,
    *,
    reported: bool,
    full_refresh: bool,
) -> RunFacts | None:
    # A run that replaces everything also replaces a commit that an earlier run left unpublished.
    unpublished_plans = [] if full_refresh else plan.plan_unpublished(asset, newest_commit)
    if unpublished_plans:
        asset.warehouse.register_tables(*asset.transform.own_tables, ledger.TABLE, results.TABLE)
        for unpublished in unpublished_plans:
            execute_plan(asset, unpublished, reported=False)
    elif newest_commit.commit_number < 0:
        asset.warehouse.register_tables(*asset.transform.own_tables)
    next_plan = planner(asset, newest_commit)
    if next_plan is None:
        return None
    if newest_commit.commit_number < 0:
        check_analysis(asset.log, asset.counting_transform)
    if next_plan.commit_info.recomputed_ranges is not None and not next_plan.stored:
        next_plan = store_replacement(asset, next_plan, conflicts)
    return execute_plan(asset, next_plan, reported=reported)


def _send_span(asset: Asset, facts: RunFacts) -> None:
    """Send the run's span if a trace receiver is configured."""
    if not telemetry.is_enabled() or facts.mode not in _TAKES:
        return
    span = telemetry.Span(
        f"run {facts.asset}",
        facts.started_at,
        facts.ended_at,
        {
            "asset": facts.asset,
            "run": facts.run,
            "commit_number": facts.commit_number,
            "events": facts.events,
            "windows": facts.windows,
            "quarantined": facts.quarantined,
        },
        [telemetry.Span(step, start, end) for step, start, end in ledger.step_spans(asdict(facts))],
    )
    telemetry.report_work(
        asset.log.traced_arrivals(facts.from_arrival, facts.through_arrival), span
    )
