"""Runs: the only ways in which a transform is ever executed.

A run takes a range of arrivals, counts their events in the state, and publishes the windows that
fired. An incremental run takes the arrivals that came since the last one; a continuous query is
the same again and again; a backfill takes all arrivals so far, for a range of windows, which it
replaces; a correction replaces the windows that lack too-late events. Each is safe to repeat, to
kill at any point, and to run beside the others.

Every run goes the same way, through four modules: `plan` says what is to be done, `compute` and the
gate of `quality` what comes of it, and `commit` writes it. Before anything else, a commit that an
earlier run could not publish to its end goes that way.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tidemark.base.errors import ConflictError, DefinitionError
from tidemark.compute.held import scratch
from tidemark.compute.pane import check
from tidemark.define.definition import Definition
from tidemark.engine.failures import explained
from tidemark.engine.planning import Planning
from tidemark.quality import quarantine, results
from tidemark.quality.decided import as_decided
from tidemark.quality.evidence import Batch
from tidemark.quality.gate import gate
from tidemark.run import commit, compute, plan, rebase, sessions, swap, takeover
from tidemark.run.admission import Admission
from tidemark.run.correct import Correction, told
from tidemark.run.plan import Plan
from tidemark.run.traced import trace
from tidemark.store import erasures, integrity, kinds, ledger
from tidemark.store.arrival import NOTHING, Recent
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges
from tidemark.store.warehouse import Warehouse

ATTEMPTS = 12

LISTED = 1000
"""Changes of a correction that are listed, if nobody says otherwise."""

_Planner = Callable[[Asset, Marker], Plan | None]


def incremental(
    warehouse: Warehouse,
    transform: Definition,
    *,
    through: int | None = None,
    limit: int | Admission | None = None,
    recent: Recent = NOTHING,
    standing: bool = False,
    reported: bool = False,
) -> RunFacts | None:
    """Take in the arrivals that the asset has not seen, and publish what they fire.

    Args:
        through: the last arrival to take; all there are by default.
        limit: how much to take at most; a number is of arrivals.
        recent: arrivals that the caller has in memory.
        standing: whether the asset was run by this very definition before: one that a newer
            definition has run meanwhile is not gone on with.
        reported: whether the caller tells the orchestrator what it did.

    Returns:
        The run's facts; None where there was nothing to do. They say whether the caller is to
        report: not where another run has ended this one.

    Raises:
        DataError: the source was never ingested.
        ConflictError: other runs of the asset were quicker, time and again.
        DefinitionChanged: another definition has run the asset since, and `standing`.
        DefinitionError: the definition has changed so that what is stored can't be gone on with.
    """
    admission = Admission.of(limit)
    if transform.follows is not None and (through is not None or admission):
        raise DefinitionError(
            f"'{transform.name}' is a roll-up, which follows all that its base has taken in: "
            f"limit the runs of '{transform.follows}' instead."
        )

    def planned(asset: Asset, last: Marker) -> Plan | None:
        return plan.increment(asset, last, through, admission, recent.arrivals)

    return _run(warehouse, transform, planned, recent=recent, reported=reported, standing=standing)


def backfill(
    warehouse: Warehouse,
    transform: Definition,
    start: int | None = None,
    end: int | None = None,
    *,
    answer: str = "as_streamed",
    reported: bool = False,
) -> RunFacts:
    """Compute windows anew from all arrivals so far, and replace them in one commit each.

    Args:
        start, end: the windows that start in [start, end), in microseconds; all by default. Of
            sessions those that hold events of that time, or touch such a one: the rest of what
            arrived is taken in before. All, where the asset has no sessions by this definition yet.
        answer: `as_streamed` counts what a stream would have counted; `complete` also counts the
            events that came too late.
        reported: whether the caller tells the orchestrator what it did.

    Raises:
        DefinitionError: an unknown answer, or only one bound, or an empty range; a roll-up, which
            follows the backfills of its base.
        DataError: the source was never ingested, or has no arrival yet.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    _check_state(transform, "backfill")
    if answer not in ("as_streamed", "complete"):
        raise DefinitionError(f"The answer is 'as_streamed' or 'complete', not '{answer}'.")
    if (start is None) != (end is None) or (start is not None and end is not None and end <= start):
        raise DefinitionError("A backfill's range needs a start and a later end, or neither.")
    if start is not None and transform.window.merges:
        asset = Asset(warehouse, transform)
        if plan.anew_in_part(asset, asset.state.last()):
            incremental(warehouse, transform)
    facts = _run(
        warehouse,
        transform,
        lambda asset, last: plan.backfill(asset, last, start, end, answer),
        reported=reported,
        anew=start is None,
    )
    assert facts is not None
    return facts


def replay(
    warehouse: Warehouse, transform: Definition, since: int, *, anew: bool = False
) -> RunFacts | None:
    """Compute the windows anew that hold an event of arrival `since` or a later one, and replace
    them, as `run.replay` says.

    Args:
        anew: whether these windows are all that the asset is to have, which has not run yet.

    Returns:
        The run's facts; None where none of these arrivals has an event.

    Raises:
        DefinitionError, DataError, ConflictError: as `backfill`.
    """
    _check_state(transform, "replay")
    if not anew:
        incremental(warehouse, transform)
    return _run(
        warehouse, transform, lambda asset, last: plan.replay(asset, last, since, anew=anew)
    )


def correct(
    warehouse: Warehouse, transform: Definition, *, most: int = LISTED, reported: bool = False
) -> Correction | None:
    """Compute anew just the windows that lack too-late events, with these, and replace them.

    Args:
        most: how many of the changes to list.
        reported: whether the caller tells the orchestrator what it did.

    Returns:
        What it changed; None where no window lacks an event.

    Raises:
        DefinitionError: a roll-up, which follows the corrections of its base.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    _check_state(transform, "correct")
    since = -1

    def planned(asset: Asset, last: Marker) -> Plan | None:
        nonlocal since
        since = warehouse.version(transform.table)
        return plan.correction(asset, last)

    facts = _run(warehouse, transform, planned, reported=reported)
    return None if facts is None else told(warehouse, transform, facts, since, most)


def count_without(warehouse: Warehouse, transform: Definition, ranges: Ranges) -> RunFacts:
    """Compute windows anew whose events have left the log (`run.erase`), and replace them.

    Args:
        ranges: where they start; no range is all.

    Raises:
        ConflictError: other runs of the asset were quicker, time and again.
    """
    facts = _run(warehouse, transform, lambda asset, last: plan.erasure(asset, last, ranges))
    assert facts is not None
    return facts


def _check_state(transform: Definition, verb: str) -> None:
    if transform.follows is not None:
        raise DefinitionError(
            f"'{transform.name}' is a roll-up, made of what '{transform.follows}' has counted: "
            f"{verb} that, then run '{transform.name}', which follows it."
        )


def _run(
    warehouse: Warehouse,
    transform: Definition,
    planned: _Planner,
    *,
    recent: Recent = NOTHING,
    reported: bool = False,
    anew: bool = False,
    standing: bool = False,
) -> RunFacts | None:
    """The first attempt that no other run was quicker than.

    Args:
        anew: whether all that is stored is replaced.
        standing: whether the asset was run by this very definition before.
    """
    integrity.demand(warehouse, transform.source, transform)
    for n in range(ATTEMPTS):
        try:
            with warehouse.catalog.aside(), explained(transform.name):
                asset = Asset(warehouse, transform, recent=recent)
                last = asset.state.last()
                if last.swap is not None and not asset.rolls_up and asset.published() < last.seq:
                    # That asks for no definition, so it is not asked whose this one is.
                    swap.finish(asset, last)
                if not anew:
                    takeover.check(asset, last, standing=standing)
                if asset.rolls_up:
                    takeover.renew(asset, standing=standing)
                facts = _attempt(asset, last, planned, reported=reported, anew=anew)
                if facts is not None:
                    trace(asset, facts)
                return facts
        except ConflictError:
            time.sleep(random.uniform(0, min(5.0, 0.1 * 2**n)))
    raise ConflictError(
        f"Other runs of '{transform.name}' were quicker {ATTEMPTS} times; try again when fewer run."
    )


def publish_again(asset: Asset, marker: Marker) -> None:
    """Publish a commit of the state once more: what it published before stays as it is."""
    _carry_out(asset, Plan(marker, few=True, stored=True, taken_up=True), reported=False)


def _attempt(
    asset: Asset, last: Marker, planned: _Planner, *, reported: bool, anew: bool
) -> RunFacts | None:
    # What another definition left behind is replaced with all the rest.
    behind = None if anew else plan.left_behind(asset, last)
    if behind is not None:
        asset.warehouse.enter(*asset.transform.tables, ledger.TABLE, results.TABLE)
        _carry_out(asset, behind, reported=False)
    elif last.seq < 0:
        asset.warehouse.enter(*asset.transform.tables)
    # Before the log is read for the first time.
    erased = erasures.gone(asset.warehouse, asset.transform.source) if last.seq < 0 else 0
    todo = planned(asset, last)
    if todo is None:
        return None
    if last.seq < 0:
        todo = todo.first(erased)
        check(asset.log, asset.counting)
    if todo.marker.mode.replaces:
        todo = _stored(asset, todo)
    return _carry_out(asset, todo, reported=reported)


def _stored(asset: Asset, todo: Plan) -> Plan:
    """A plan that replaces windows, with its partials in the state: from here on it is published
    like a commit that was left behind, and a stream beside it goes on."""
    with scratch(asset.warehouse) as place, asset.warehouse.planning(Planning.of(todo.few)):
        partials = compute.count(asset, todo, place)
        todo = todo.after("count")
        open_from = sessions.open_from(asset, todo.marker, partials)
        todo = replace(todo, marker=replace(todo.marker, open_from=open_from))
        asset.life = asset.state.create(partials)
        committed = rebase.store(asset, todo, partials, place).after("store")
    return replace(committed, stored=True, counts=asset.state.counts(committed.marker))


def _carry_out(asset: Asset, todo: Plan, *, reported: bool) -> RunFacts:
    if todo.taken_up or asset.rolls_up:
        asset = as_decided(asset, todo.marker)
    warehouse, transform, marker = asset.warehouse, asset.transform, todo.marker
    few, planning = compute.merging(asset, todo)
    small = few and todo.few
    counting = Planning.MANY if todo.few and not few else todo.counting
    with (
        scratch(warehouse) as place,
        warehouse.planning(counting),
        Batch(asset, marker, place, small, small, counting).ahead() as batch,
        ExitStack() as rest,
    ):
        new = None
        if not todo.stored:
            new = compute.count(asset, todo, place)
            todo = todo.after("count")
        rest.enter_context(warehouse.planning(planning))
        computed = compute.finish(asset, todo, new, place, few=few, planning=planning)
        if computed.partials is not None:
            asset.life = asset.state.create(computed.partials)
        warehouse.create(
            transform.table,
            compute.published_columns(computed.windows),
            transform.description,
            feed=True,
            told={kinds.PROPERTY: kinds.first(transform)} if asset.rolls_up else None,
        )
        asset.life = asset.life or asset.lifetime()
        if asset.rolls_up and any(m.mode.replaces for m in asset.state.since(marker.seq)):
            # An erasure lets follow what has a table once the base was computed anew: this one has
            # one, so either that finds it, or what the base had before is not published here.
            raise ConflictError(f"The base of '{transform.name}' was computed anew meanwhile.")
        if asset.rolls_up and asset.lifetime() != asset.life:
            raise ConflictError(f"'{transform.name}' has windows of another kind meanwhile.")
        guarded = compute.is_guarded(asset) or computed.overflowed
        if guarded:
            quarantine.create(warehouse, transform, computed.windows)
        todo = todo.after("compute")
        batch = replace(batch, few=few, guarded=guarded, overflowed=computed.overflowed)
        passed = gate(batch, computed.windows)
        todo = todo.after("judge")
        if computed.partials is not None:
            todo = replace(todo, marker=replace(marker, open_from=computed.open_from))
            commit.store(asset, todo, computed.partials)
            todo = todo.after("store")
        return commit.publish(asset, todo, computed, passed, reported=reported)
