"""Replays: what arrived from some arrival on is counted anew, by the definition in the code.

The windows in which these events lie are computed whole, from all arrivals, as events of before are
in them too: so a replay counts nothing twice, and what comes of it is what any run gives. Into the
asset's table they go as a backfill of just these windows does, in one commit of each table; beside
it they make tables of their own, `<asset>__<name>`, and nothing of the asset's is touched.
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
    """What a replay did.

    Args:
        asset: the asset's name.
        table: where its windows are.
        since, through: it is about the windows that hold an event of the arrivals [since, through].
        windows: rows that it published.
        quarantined: windows that it withheld.
        facts: the run's; None where none of these arrivals has an event.
    """

    asset: str
    table: str
    since: int
    through: int
    windows: int
    quarantined: int
    facts: RunFacts | None


def first_since(log: Log, arrival: int | None, instant: int | None) -> int:
    """The first arrival of a replay: the one of that number, or the first that came at an instant
    (microseconds) of the processing clock or later.

    Raises:
        DefinitionError: neither is given, or both.
        DataError: nothing has arrived since.
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
    """Compute the windows that hold an event of arrival `since` or a later one, and replace them.

    What has not been taken in yet is taken in before. Counted is what a stream counts: what a
    correction had added to these windows, the next one adds again.

    Raises:
        DefinitionError: a roll-up, which follows its base; or what is stored can't be gone on with
            by this definition.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    facts = runner.replay(warehouse, transform, since)
    return _told(warehouse, transform, transform, since, facts)


def replay_beside(warehouse: Warehouse, transform: Definition, since: int, name: str) -> Replayed:
    """The same windows in tables beside the asset's, which are made anew each time; of sessions
    all, as one may reach across any bound.

    Raises:
        DefinitionError: a roll-up, a name that can't be a table's, or a definition that can't run.
    """
    side = beside(transform, name)

    def made() -> RunFacts | None:
        drop(warehouse, side)
        return runner.replay(warehouse, side, since, anew=True)

    facts = rebuild.without_erased(warehouse, side, made)
    return _told(warehouse, transform, side, since, facts)


def beside(transform: Definition, name: str) -> WindowedTransform:
    """The asset under whose name the tables of a replay are made: the same definition."""
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
