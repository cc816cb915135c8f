"""Replays: recompute every window with an event of a given arrival or a later one.

A replay uses the definition in the code. It computes these windows from all arrivals, because they
hold earlier events too. So it counts nothing twice, and gives the same result as any other run.
Into the asset's own tables it writes like a backfill of these windows, with one commit per table. A
side replay writes to separate tables, `<asset>__<name>`, and does not touch the asset's.
"""

from dataclasses import dataclass

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.define.source import NAME
from tidemark.define.tables import REBUILD
from tidemark.define.transform import WindowedTransform
from tidemark.run import rebuild, runner
from tidemark.store.asset import Asset
from tidemark.store.dropping import drop
from tidemark.store.ledger import RunFacts
from tidemark.store.log import Log
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Args:
        asset: the asset's name.
        table: the table with the replayed windows.
        since, through: the windows hold an event of the arrivals [since, through].
        windows: number of rows published.
        quarantined: number of windows quarantined.
        facts: facts of the run; None if these arrivals have no event.
    """

    asset: str
    table: str
    since: int
    through: int
    windows: int
    quarantined: int
    facts: RunFacts | None


def first_since(log: Log, arrival: int | None, instant: int | None) -> int:
    """Return the first arrival of a replay.

    It is the arrival with the given number, or the first at or after an instant (microseconds,
    processing time).

    Raises:
        DefinitionError: neither is given, or both.
        DataError: there is no arrival since then.
    """
    if (arrival is None) == (instant is None):
        raise DefinitionError("Say from which arrival, or from which instant: one of them.")
    newest = log.last() if log.warehouse.exists(log.source.timeline_table) else None
    if newest is None:
        raise DataError(f"Source '{log.source.name}' has no arrivals yet: ingest it.")
    came = log.timeline() if arrival is None else []
    since_then = (a.arrival for a in came if instant is not None and a.arrived_at >= instant)
    found = next(since_then, None) if arrival is None else arrival
    if found is None or not 0 <= found <= newest.arrival:
        since = f"arrival {arrival}" if instant is None else str(iso(instant))
        raise DataError(
            f"'{log.source.name}' has no arrival since {since}: its newest is {newest.arrival}, of "
            f"{iso(newest.arrived_at)}."
        )
    return found


def replay(warehouse: Warehouse, transform: Definition, since: int) -> Replayed:
    """Recompute and replace the windows that hold an event of arrival `since` or a later one.

    Arrivals that have not been processed yet are processed first. A replay excludes too-late
    events, as a stream does. Events that a correction had added to these windows are added again by
    the next correction.

    Raises:
        DefinitionError: the asset is a roll-up, which follows its base; or the stored data is
            incompatible with this definition.
        ConflictError: other runs of the asset kept committing first.
    """
    facts = runner.replay(warehouse, transform, since)
    return _told(warehouse, transform, transform, since, facts)


def replay_beside(warehouse: Warehouse, transform: Definition, since: int, name: str) -> Replayed:
    """Compute the same windows into separate tables, which are recreated each time.

    For session windows this computes all sessions, because one may cross any bound.

    Raises:
        DefinitionError: the asset is a roll-up, the name is not a valid table name, or the
            definition can't run.
    """
    side = beside(transform, name)

    def made() -> RunFacts | None:
        drop(warehouse, side)
        return runner.replay(warehouse, side, since, anew=True)

    facts = rebuild.without_erased(warehouse, side, made)
    return _told(warehouse, transform, side, since, facts)


def beside(transform: Definition, name: str) -> WindowedTransform:
    """Return the same definition under the name of the replay's tables."""
    if not NAME.fullmatch(name) or name == REBUILD:
        raise DefinitionError(
            f"A replay can't go into '{name}': use lower-case letters, digits and underscores, a "
            "letter first, and not 'rebuild', which is that of `tidemark rebuild`."
        )
    return rebuild.beside(transform, name, "replay")


def _told(
    warehouse: Warehouse,
    transform: Definition,
    into: Definition,
    since: int,
    facts: RunFacts | None,
) -> Replayed:
    stands = Asset(warehouse, into).state.last().after.through
    return Replayed(
        asset=transform.name,
        table=into.table,
        since=since,
        through=stands if facts is None else facts.through_arrival,
        windows=0 if facts is None else facts.windows,
        quarantined=0 if facts is None else facts.quarantined,
        facts=facts,
    )
