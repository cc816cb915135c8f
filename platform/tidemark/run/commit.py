"""Commit a run: write the computed and validated rows, with one commit per table.

The order of the writes makes a kill at any point harmless:

| killed before | leaves |
| --- | --- |
| `state` | nothing |
| `quarantine` … `published` | a commit that the next run publishes: each table accepts it once, |
| | and the first attempt's decisions about rows apply (`quality.recorded_decisions`) |
| `ledger` | the same, but only the row of the ledger is left to write |

Each step is a fail point (`base.failpoint`).
"""

import time
from collections import Counter
from collections.abc import Mapping

from tidemark.base.failpoint import pass_fail_point
from tidemark.define import classification
from tidemark.define.helper_columns import IS_DELETED
from tidemark.quality import quarantine, results
from tidemark.quality.gate import GateResult
from tidemark.run.compute import Computation, Output
from tidemark.run.plan import Plan
from tidemark.store import ledger, lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo, StateCommit
from tidemark.store.commits.kinds import Following
from tidemark.store.commits.ranges import starts_within
from tidemark.store.committers.values import Merge
from tidemark.store.ledger import RunFacts
from tidemark.store.rows import Rows, arrow_schema, delta_schema, drop_deleted, is_empty
from tidemark.store.upkeep import short_logs

STEPS = ("state", "quarantine", "results", "late", "panes", "published", "ledger")


def store_partials(asset: Asset, plan: Plan, partials: Rows) -> None:
    """Commit a run's partials to the state.

    Raises:
        ConflictError: another run took the commit's number first. Nothing was stored.
    """
    assert isinstance(plan.commit_info, StateCommit)
    pass_fail_point("state")
    asset.state.store_commit(partials, plan.commit_info, asset.start_epoch)


def publish_rows(
    asset: Asset, plan: Plan, computed: Computation, passed: GateResult, *, reported: bool
) -> RunFacts:
    """Write a commit's rows to the tables that users read, and return the run's facts."""
    transform = asset.transform
    commit_info = plan.commit_info
    panes = [output for output in computed.outputs if output.table == transform.panes_table]
    # Write the quarantine first. Once it is written, a retry repeats the decisions about rows.
    pass_fail_point("quarantine")
    if passed.quarantine_changes is not None:
        quarantine.commit_changes(asset, commit_info, passed.quarantine_changes)
    pass_fail_point("results")
    results.append_results(asset, commit_info, passed.results)
    pass_fail_point("late")
    for output in computed.outputs:
        if output not in panes:
            _write_output(asset, commit_info, output)
    pass_fail_point("panes")
    for output in panes:
        _write_output(asset, commit_info, output)
    pass_fail_point("published")
    written = _write_published(asset, plan, passed.rows, computed.reach)
    pass_fail_point("ledger")
    windows = passed.count
    if written is None:
        windows = 0
    facts = build_run_facts(
        asset,
        plan.commit_info,
        computed.counts,
        windows=windows,
        quarantined=passed.quarantined,
        warned=passed.warned,
        reported=reported,
        limited_by=plan.limited_by,
        ended=plan.ended,
    )
    tables = list[str](transform.own_tables)
    tables.append(results.TABLE)
    recorded = ledger.add_run(asset.warehouse, facts, tables, is_repeated=plan.taken_up)
    if isinstance(commit_info, StateCommit):
        short_logs.of_asset(asset, commit_info)
    return recorded


def _write_published(asset: Asset, plan: Plan, rows: Rows, within_reach: str) -> int | None:
    """Write a commit's rows to the published table.

    Return the number of rows, or None if the table already had the commit.

    Args:
        within_reach: as `Computation.reach`.
    """
    warehouse = asset.warehouse
    commit_info = plan.commit_info
    table = asset.transform.published_table
    base_run = None
    if isinstance(commit_info, Following):
        base_run = lineage.base_run_record(asset, commit_info.base_run)
    ranges = commit_info.overwritten_ranges
    if ranges is not None:
        return warehouse.replace_rows(
            drop_deleted(rows),
            table,
            starts_within(ranges),
            asset.commit_app,
            commit_info.commit_number,
            vouches=base_run,
            epoch=asset.start_epoch,
        )
    if is_empty(rows):
        return 0
    merge = Merge(
        on=asset.transform.by_window,
        within=within_reach,
        delete=f"s.{IS_DELETED}",
        insert=f"NOT s.{IS_DELETED}",
    )
    return warehouse.merge_rows(
        rows,
        table,
        merge,
        asset.commit_app,
        commit_info.commit_number,
        vouches=base_run,
        epoch=asset.start_epoch,
    )


def _write_output(asset: Asset, commit_info: CommitInfo, output: Output) -> None:
    """Write a commit's rows to a table other than the published one.

    The rows replace existing rows, or are only added, as `Output.replaced` specifies.
    """
    warehouse = asset.warehouse
    table = output.table
    number = commit_info.commit_number
    warehouse.ensure_table(table, output.rows, output.comment)
    if output.grows:
        warehouse.add_columns(table, arrow_schema(delta_schema(output.rows.schema)))
    ranges = output.replaced
    if commit_info.is_first_commit:
        # The first commit replaces all rows.
        ranges = ()
    if ranges is not None:
        condition = starts_within(ranges)
        warehouse.replace_rows(
            output.rows, table, condition, asset.commit_app, number, epoch=asset.start_epoch
        )
    elif not is_empty(output.rows):
        warehouse.append_rows(
            output.rows,
            table,
            asset.commit_app,
            number,
            epoch=asset.start_epoch,
        )


def build_run_facts(
    asset: Asset,
    commit_info: CommitInfo,
    counts: Counter[int],
    *,
    windows: int,
    quarantined: int,
    warned: int = 0,
    reported: bool = False,
    limited_by: str | None = None,
    ended: Mapping[str, int] | None = None,
) -> RunFacts:
    """Return the facts of the run whose commit has just been published.

    Args:
        counts: number of the commit's events, by code in `classification.VERDICTS`.
        windows, quarantined, warned, reported, limited_by: as in `RunFacts`.
        ended: end time of each step in microseconds, by the name of the ledger's column.
    """
    assert asset.table_id is not None
    window_from, window_to = commit_info.start_bounds
    from_arrival = -1
    if commit_info.recomputed_ranges is None:
        from_arrival = commit_info.before.at.arrival
    return RunFacts(
        run=commit_info.run,
        asset=asset.transform.name,
        table_id=asset.table_id,
        mode=commit_info.mode,
        late_events=commit_info.late_events,
        commit_number=commit_info.commit_number,
        from_arrival=from_arrival,
        through_arrival=commit_info.furthest_position.arrival,
        window_from=window_from,
        window_to=window_to,
        started_at=commit_info.started,
        ended_at=time.time_ns() // 1000,
        watermark=commit_info.furthest_position.watermark,
        windows=windows,
        quarantined=quarantined,
        warned=warned,
        **{word: counts[code] for code, word in classification.VERDICTS.items()},
        reported=reported,
        limited_by=limited_by,
        **(ended or {}),
    )
