"""Replays: recompute every window with an event of a given arrival or a later one.

A replay uses the definition in the code. It computes these windows from all arrivals, because the
windows contain earlier events, too. So a replay counts nothing twice, and gives the same result as
any other run. It writes to the asset's own tables like a backfill of these windows, with one commit
per table. A side replay writes to separate tables, `<asset>__<name>`, and does not touch the
asset's own tables.
"""

from dataclasses import dataclass

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.define.source import NAME
from tidemark.define.tables import REBUILD
from tidemark.define.transform import WindowedTransform
from tidemark.run import runner
from tidemark.run.change import rebuild
from tidemark.store.asset import Asset
from tidemark.store.event_log.arrival import no_arrivals
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.upkeep.dropping import drop
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay.

    Args:
        table: the table with the replayed windows.
        since, through: the replayed windows contain an event of the arrivals [since, through].
        facts: facts of the run; None if these arrivals have no event in a window.
    """

    asset: str
    table: str
    since: int
    through: int
    windows: int
    quarantined: int
    facts: RunFacts | None


def find_first_arrival(log: Log, arrival: int | None, instant: int | None) -> int:
    """Return the number of the first arrival of a replay.

    Args:
        arrival: the number, if the caller knows it.
        instant: otherwise, the processing time in microseconds; the first arrival at or after this
            instant is returned.

    Raises:
        DefinitionError: both arguments are None, or neither is.
        DataError: no such arrival exists.
    """
    if (arrival is None) == (instant is None):
        raise DefinitionError(
            "Specify either the first arrival or the first instant, but not both."
        )
    newest = log.last() if log.warehouse.exists(log.source.timeline_table) else None
    if newest is None:
        raise no_arrivals(log.source.name)
    came = log.timeline() if arrival is None else []
    since_then = (a.arrival for a in came if instant is not None and a.arrived_at >= instant)
    found = next(since_then, None) if arrival is None else arrival
    if found is None or not 0 <= found <= newest.arrival:
        wanted = f"arrival {arrival}" if instant is None else f"arrival since {iso(instant)}"
        raise DataError(
            f"Source '{log.source.name}' has no {wanted}: its newest arrival is {newest.arrival}, "
            f"from {iso(newest.arrived_at)}."
        )
    return found


def replay(warehouse: Warehouse, transform: Definition, since: int) -> ReplayResult:
    """Recompute and replace the windows that hold an event of arrival `since` or a later one.

    New arrivals are processed first. A replay excludes too-late events, as a stream does. If a
    correction had added too-late events to these windows, the next correction adds them again.
    """
    facts = runner.replay(warehouse, transform, since)
    return _report(warehouse, transform, transform, since, facts)


def replay_to_side_tables(
    warehouse: Warehouse, transform: Definition, since: int, name: str
) -> ReplayResult:
    """Compute the windows that `replay` would replace, and write them to separate tables.

    The separate tables are recreated each time. If the windows are sessions, all sessions are
    computed, because a session may cross any bound.
    """
    side = side_definition(transform, name)
    drop(warehouse, side)
    facts = runner.replay(warehouse, side, since, into_empty=True)
    return _report(warehouse, transform, side, since, facts)


def side_definition(transform: Definition, name: str) -> WindowedTransform:
    """Return a copy of the definition with separate tables, `<asset>__<name>`, for a replay."""
    if not NAME.fullmatch(name) or name == REBUILD:
        raise DefinitionError(
            f"A replay can't go into '{name}': use lower-case letters, digits and underscores, and "
            "start with a letter. 'rebuild' is reserved for `tidemark rebuild`."
        )
    return rebuild.side_definition(transform, name, "replay")


def _report(
    warehouse: Warehouse,
    transform: Definition,
    into: Definition,
    since: int,
    facts: RunFacts | None,
) -> ReplayResult:
    newest = Asset(warehouse, into).state.last().after.through
    return ReplayResult(
        asset=transform.name,
        table=into.table,
        since=since,
        through=newest if facts is None else facts.through_arrival,
        windows=0 if facts is None else facts.windows,
        quarantined=0 if facts is None else facts.quarantined,
        facts=facts,
    )
