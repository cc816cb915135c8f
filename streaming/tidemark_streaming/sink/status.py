"""Report how far a topic is behind its asset's table, without publishing anything."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial

from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.sink.writer import is_current, open_topic, topic_of


@dataclass(frozen=True)
class SinkStatus:
    """The publishing progress of a topic.

    Args:
        topic: its name.
        version: the last version of the table whose changes the topic has; -1 if it has none, or
            after table or topic were recreated.
        behind: the number of versions that the topic lacks.
        since: the commit time of the first of these versions that the transaction log still has, in
            microseconds; None if there is none.
        run: the ID of the newest published run, if known.
        at: the time at which that run was published, in microseconds; None if nothing was.
    """

    topic: str
    version: int
    behind: int
    since: int | None
    run: str | None
    at: int | None


def sink_status(warehouse: Warehouse, transform: Definition) -> SinkStatus:
    """Return the publishing progress of an asset's topic."""
    name, way = topic_of(transform).name, open_topic(transform, warehouse)
    known, topic = way.position(), way.find_topic()
    head = warehouse.head(transform.table)
    if head is None:
        return SinkStatus(name, -1, 0, None, None, None)
    if known is not None and (known.table != head.table_id or not is_current(known, topic)):
        known = None
    version = -1 if known is None else known.version
    behind = head.version - version
    since = _commit_time(warehouse, transform.table, range(version + 1, head.version + 1))
    run, at = (None, None) if known is None else (known.run, known.at)
    return SinkStatus(name, version, behind, since, run, at)


def _commit_time(warehouse: Warehouse, table: str, versions: range) -> int | None:
    """Return the commit time of the first version in `versions` that the transaction log still has,
    or None if it has none of them.
    """
    at = partial(warehouse.committed_at, table)
    # The log's expired versions all come before the others, so a binary search finds the first.
    first = bisect_left(versions, True, key=lambda version: at(version) is not None)
    return at(versions[first]) if first < len(versions) else None
