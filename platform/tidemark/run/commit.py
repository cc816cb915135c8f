"""Commit: what was computed and judged is written, each table once, in an order that a kill at any
point leaves harmless.

| a run that is killed before | leaves |
| --- | --- |
| `state` | nothing |
| `quarantine` … `published` | a commit that the next run publishes: each table takes it once, and |
| | the rows go where the first attempt had decided (`quality.decided`) |
| `ledger` | the same, with nothing to write but this row |

Each step is a fail point (`base.failpoint`).
"""

from tidemark.base.errors import ConflictError
from tidemark.base.failpoint import reach
from tidemark.quality import quarantine, results
from tidemark.quality.gate import Passed
from tidemark.run import facts
from tidemark.run.compute import Computed, Output
from tidemark.run.plan import Plan
from tidemark.store import erasures, ledger
from tidemark.store.asset import Asset
from tidemark.store.committers import Merge
from tidemark.store.ledger import RunFacts
from tidemark.store.marker import Marker
from tidemark.store.ranges import within
from tidemark.store.rows import Rows, arrow_schema, delta_schema, is_empty, staying

STEPS = ("state", "quarantine", "results", "late", "panes", "published", "ledger")


def store(asset: Asset, plan: Plan, partials: Rows) -> None:
    """Commit a run's partials to the state.

    Raises:
        ConflictError: another run took the commit's number first, or events were erased meanwhile
            of which the asset may have some; nothing was stored.
    """
    source = asset.transform.source
    # An erasure computes anew what has a state's table once the events have left the log. This
    # asset's is there by now: so either that erasure finds it, and takes a number in it, before
    # this commit or upon it, or the events have left the log already, which is seen here.
    if plan.erasures is not None and erasures.gone(asset.warehouse, source) != plan.erasures:
        raise ConflictError(f"Events of '{source.name}' were erased meanwhile.")
    reach("state")
    asset.state.commit(partials, plan.marker)


def publish(
    asset: Asset, plan: Plan, computed: Computed, passed: Passed, *, reported: bool
) -> RunFacts:
    """Write what a commit of the state gives to the tables that users read."""
    transform, marker = asset.transform, plan.marker
    panes = [o for o in computed.others if o.table == transform.panes_table]
    # First what was decided of the rows: from here on a retry goes by it.
    reach("quarantine")
    if passed.held is not None:
        quarantine.commit(asset, marker, passed.held)
    reach("results")
    results.append(asset, marker, passed.found)
    reach("late")
    for output in computed.others:
        if output not in panes:
            _put(asset, marker, output)
    reach("panes")
    for output in panes:
        _put(asset, marker, output)
    reach("published")
    done = _publish(asset, plan, passed.rows, computed.reach)
    reach("ledger")
    windows = 0 if done is None else passed.count
    found = facts.of_commit(
        asset,
        plan.marker,
        computed.counts,
        windows=windows,
        quarantined=passed.quarantined,
        warned=passed.warned,
        reported=reported,
        limited_by=plan.limited_by,
        ended=plan.ended,
    )
    return ledger.append(asset.warehouse, found, [*transform.tables, results.TABLE])


def _publish(asset: Asset, plan: Plan, rows: Rows, within_reach: str) -> int | None:
    """How many rows were written; None where they had been written before."""
    store_, transform, marker = asset.warehouse, asset.transform, plan.marker
    table, place = transform.table, (asset.app, marker.seq)
    if marker.replaces_windows:
        return store_.replace(staying(rows), table, within(marker.ranges), *place)
    if marker.seq == 0 and not asset.rolls_up:
        # Every window fires for the first time here: what is there is of an earlier life, of which
        # a `tidemark drop` that was killed had left it.
        return store_.replace(staying(rows), table, "TRUE", *place)
    if is_empty(rows):
        return 0
    by = transform.by_window
    merge = Merge(on=by, within=within_reach, delete="s.gone", insert="NOT s.gone")
    return store_.merge(rows, table, merge, *place)


def _put(asset: Asset, marker: Marker, output: Output) -> None:
    """Write what a commit gives for a table of windows, in the place of all rows of its windows
    where it replaces them."""
    store_ = asset.warehouse
    store_.create(output.table, output.rows, output.comment)
    if output.grows:
        store_.widen(output.table, arrow_schema(delta_schema(output.rows.schema)))
    if marker.replaces or (marker.seq == 0 and not asset.rolls_up):
        where = "TRUE" if output.whole else within(marker.ranges)
        store_.replace(output.rows, output.table, where, asset.app, marker.seq)
    elif not is_empty(output.rows):
        store_.append(output.rows, output.table, asset.app, marker.seq)
