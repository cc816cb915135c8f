"""Execute a plan: compute, validate and commit what it specifies.

If the plan replaces windows, its partials are committed to the state first (`store_replacement`).
Otherwise, one commit writes the partials and the rows.
"""

from contextlib import ExitStack
from dataclasses import replace

from tidemark.base.errors import ConflictError
from tidemark.compute.materialize import temp_tables
from tidemark.engine.queries.planning import Planning
from tidemark.quality import quarantine
from tidemark.quality.evidence import Batch
from tidemark.quality.gate import validate_and_split
from tidemark.quality.recorded_decisions import with_recorded_decisions
from tidemark.run import commit, compute, rebase
from tidemark.run.plan import Plan
from tidemark.run.workload import estimate_workload
from tidemark.store.asset import Asset
from tidemark.store.commits import rollup_generation
from tidemark.store.ledger import RunFacts


def store_replacement(asset: Asset, todo: Plan, conflicts: rebase.Conflicts) -> Plan:
    """Store the partials of a plan that replaces windows, and return the plan as it was committed.

    The plan is then published like an unpublished commit of an earlier run. A stream of the asset
    can continue in parallel.
    """
    with (
        temp_tables(asset.warehouse) as scratch,
        asset.warehouse.use_planning(Planning.for_size(todo.few)),
    ):
        partials = compute.count_events(asset, todo, scratch)
        todo = todo.with_end_of("count")
        open_from = compute.find_open_from(asset, todo.commit_info, partials)
        todo = replace(todo, commit_info=replace(todo.commit_info, open_from=open_from))
        asset.table_id = asset.state.ensure_table(partials)
        committed = rebase.store_plan(asset, todo, partials, scratch, conflicts).with_end_of(
            "store"
        )
    return replace(committed, stored=True, counts=asset.state.count_events(committed.commit_info))


def execute_plan(asset: Asset, todo: Plan, *, reported: bool) -> RunFacts:
    """Compute, validate and commit what a plan specifies, and return the run's facts."""
    if todo.taken_up:
        # The state may already have later commits, but the published rows must depend on this
        # commit alone.
        asset = asset.as_of_commit(todo.commit_info.commit_number)
    if todo.taken_up or asset.rolls_up:
        asset = with_recorded_decisions(asset, todo.commit_info)
    warehouse = asset.warehouse
    workload = estimate_workload(asset, todo)
    with (
        temp_tables(warehouse) as scratch,
        warehouse.use_planning(workload.counting),
        Batch(
            asset,
            todo.commit_info,
            scratch,
            few=workload.is_small,
            few_events=workload.is_small,
            planning=workload.counting,
        ).prepare_validation() as batch,
        ExitStack() as merging,
    ):
        new_partials = None
        if not todo.stored:
            new_partials = compute.count_events(asset, todo, scratch)
            todo = todo.with_end_of("count")
        merging.enter_context(warehouse.use_planning(workload.merging))
        computed = compute.compute_windows(asset, todo, new_partials, scratch, workload)
        is_guarded = compute.is_guarded(asset) or computed.overflowed
        _create_tables(asset, computed, is_guarded=is_guarded)
        todo = todo.with_end_of("compute")
        batch = replace(
            batch,
            few=workload.few_partials,
            guarded=is_guarded,
            overflowed=computed.overflowed,
        )
        gate_result = validate_and_split(batch, computed.windows)
        todo = todo.with_end_of("validate")
        if computed.partials is not None:
            todo = replace(
                todo, commit_info=replace(todo.commit_info, open_from=computed.open_from)
            )
            commit.store_partials(asset, todo, computed.partials)
            todo = todo.with_end_of("store")
        return commit.publish_rows(asset, todo, computed, gate_result, reported=reported)


def _create_tables(asset: Asset, computed: compute.Computation, *, is_guarded: bool) -> None:
    """Create the tables of an asset that the commit needs, if they do not exist.

    Args:
        is_guarded: true if the rows are validated, so that some can be quarantined.
    """
    warehouse = asset.warehouse
    transform = asset.transform
    if computed.partials is not None:
        asset.table_id = asset.state.ensure_table(computed.partials)
    properties = None
    if asset.rolls_up:
        generation = rollup_generation.initial_generation(transform)
        properties = {rollup_generation.PROPERTY: generation}
    warehouse.ensure_table(
        transform.published_table,
        compute.select_published(computed.windows),
        transform.description,
        feed=True,
        extra_properties=properties,
    )
    if asset.rolls_up and asset.read_table_id() != asset.table_id:
        raise ConflictError(
            f"Another run recreated the tables of '{transform.name}' during this run. Run the "
            "command again."
        )
    if is_guarded:
        quarantine.create_table(warehouse, transform, computed.windows)
