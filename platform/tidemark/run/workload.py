"""Estimate how much a commit computes, and choose how the engine plans its queries."""

from dataclasses import dataclass

from tidemark.base import thresholds
from tidemark.compute.affected.final_windows import find_affected_range
from tidemark.engine.queries.planning import Planning
from tidemark.run.plan import Plan
from tidemark.store.asset import Asset


@dataclass(frozen=True)
class Workload:
    """The amount of data of a commit, with the planning modes for it.

    Args:
        few_events: true if the commit has few events.
        few_partials: true if the windows that the commit can change have few stored partials. Their
            rows then fit into memory.
        counting: the planning mode for counting events.
        merging: the planning mode for merging partials.
    """

    few_events: bool
    few_partials: bool
    counting: Planning
    merging: Planning

    @property
    def is_small(self) -> bool:
        return self.few_events and self.few_partials


def estimate_workload(asset: Asset, plan: Plan) -> Workload:
    """Return the workload of a plan's commit, from statistics of the stored partials."""
    commit_info = plan.commit_info
    if asset.rolls_up or (commit_info.commit_number == 0 and not plan.stored):
        # All partials are computed from the commit's events.
        return Workload(plan.few, plan.few, plan.counting, plan.counting)
    stored = asset.state.max_partial_count(find_affected_range(asset.transform, commit_info))
    few_partials = stored <= thresholds.IN_MEMORY_PARTIALS
    counting = plan.counting
    if plan.few and not few_partials:
        # Validation may recount all events of these windows.
        counting = Planning.MANY
    if plan.few and few_partials:
        merging = plan.counting
    elif stored <= thresholds.ADAPTIVE_PARTIALS:
        merging = Planning.SOME
    else:
        merging = Planning.MANY
    return Workload(plan.few, few_partials, counting, merging)
