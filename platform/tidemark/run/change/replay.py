"""Replays: recompute every window with an event of a given arrival or a later one.

A replay uses the definition in the code. It computes these windows from all arrivals, because the
windows contain earlier events, too. So a replay counts nothing twice, and gives the same result as
any other run. It writes to the asset's own tables like a backfill of these windows, with one commit
per table. A side replay writes to separate tables, `<asset>__<name>`, and does not touch the
asset's own tables.
"""

from dataclasses import dataclass

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import format_instant
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
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class ReplayResult:
    """The windows that a replay has recomputed, and the table that has them.

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
    newest = log.find_last_arrival() if log.warehouse.has_table(log.source.timeline_table) else None
    if newest is None:
        raise no_arrivals(log.source.name)
    if instant is None:
        first_arrival = arrival
        request = f"arrival {arrival}"
    else:
        first_arrival = _find_arrival_since(log, instant)
        request = f"arrival since {format_instant(instant)}"
    if first_arrival is None or not 0 <= first_arrival <= newest.arrival:
        raise DataError(
            f"Source '{log.source.name}' has no {request}: its newest arrival is {newest.arrival}, "
            f"from {format_instant(newest.arrived_at)}."
        )
    return first_arrival


def _find_arrival_since(log: Log, instant: int) -> int | None:
    """Return the number of the first arrival at or after an instant; None if there is none."""
    for arrival in log.read_timeline():
        if arrival.arrived_at >= instant:
            return arrival.arrival
    return None


def replay_windows(
    warehouse: Warehouse, definition: Definition, first_arrival: int
) -> ReplayResult:
    """Recompute and replace the windows that hold an event of an arrival or of a later one.

    New arrivals are processed first. A replay excludes too-late events, as a stream does. If a
    correction had added too-late events to these windows, the next correction adds them again.
    """
    facts = runner.replay(warehouse, definition, first_arrival)
    return _build_result(warehouse, definition, definition, first_arrival, facts)


def replay_to_side_tables(
    warehouse: Warehouse, definition: Definition, first_arrival: int, name: str
) -> ReplayResult:
    """Compute the windows that `replay_windows` would replace, and write them to separate tables.

    The separate tables are recreated each time. If the windows are sessions, all sessions are
    computed, because a session may cross any bound.
    """
    side = side_definition(definition, name)
    drop_asset(warehouse, side)
    facts = runner.replay(warehouse, side, first_arrival, into_empty=True)
    return _build_result(warehouse, definition, side, first_arrival, facts)


def side_definition(definition: Definition, name: str) -> WindowedTransform:
    """Return a copy of the definition with separate tables, `<asset>__<name>`, for a replay."""
    if not NAME.fullmatch(name) or name == REBUILD:
        raise DefinitionError(
            f"A replay can't go into '{name}': use lower-case letters, digits and underscores, and "
            "start with a letter. 'rebuild' is reserved for `tidemark rebuild`."
        )
    return rebuild.side_definition(definition, name, "replay")


def _build_result(
    warehouse: Warehouse,
    definition: Definition,
    replayed: Definition,
    first_arrival: int,
    facts: RunFacts | None,
) -> ReplayResult:
    if facts is None:
        last_arrival = Asset(warehouse, replayed).state.read_last_commit().after.newest_arrival
        windows = 0
        quarantined = 0
    else:
        last_arrival = facts.through_arrival
        windows = facts.windows
        quarantined = facts.quarantined
    return ReplayResult(
        asset=definition.name,
        table=replayed.published_table,
        since=first_arrival,
        through=last_arrival,
        windows=windows,
        quarantined=quarantined,
        facts=facts,
    )
