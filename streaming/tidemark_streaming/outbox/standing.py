"""How far a topic is behind its asset's table, without bringing anything out."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial

from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.outbox.outbox import channel, fits, topic_of


@dataclass(frozen=True)
class Standing:
    """How far a topic is.

    Args:
        topic: its name.
        version: the table's last version of which the topic has the changes; -1 before any, and
            where it was made anew.
        behind: how many versions it has not.
        since: when the first of these was committed, in microseconds, of those that the table's
            log tells of; None where there is none.
        run: the id of the newest run that is out, where that is known.
        at: when that went out, in microseconds; None before anything did.
    """

    topic: str
    version: int
    behind: int
    since: int | None
    run: str | None
    at: int | None


def standing(warehouse: Warehouse, transform: Definition) -> Standing:
    """How far the topic of an asset is.

    Raises:
        DataError: the brokers do not answer.
        DefinitionError: the asset publishes to no topic, or to one that has an asset of its name
            of another database.
    """
    name, way = topic_of(transform).name, channel(transform, warehouse)
    known, there = way.position(), way.there()
    head = warehouse.head(transform.table)
    if head is None:
        return Standing(name, -1, 0, None, None, None)
    if known is not None and (known.table != head.life or not fits(known, there)):
        known = None
    version = -1 if known is None else known.version
    behind = head.version - version
    since = _committed(warehouse, transform.table, range(version + 1, head.version + 1))
    run, at = (None, None) if known is None else (known.run, known.at)
    return Standing(name, version, behind, since, run, at)


def _committed(warehouse: Warehouse, table: str, versions: range) -> int | None:
    """When the first of these versions was committed of which the table's log still tells."""
    at = partial(warehouse.committer.committed_at, table)
    # What it has forgotten is all before what it has not.
    first = bisect_left(versions, True, key=lambda version: at(version) is not None)
    return at(versions[first]) if first < len(versions) else None
