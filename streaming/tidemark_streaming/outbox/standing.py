"""How far a topic is behind its asset's table, without bringing anything out."""

from dataclasses import dataclass

from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.outbox.outbox import channel, topic_of


@dataclass(frozen=True)
class Standing:
    """How far a topic is.

    Args:
        topic: its name.
        version: the table's last version of which the topic has the changes; -1 before any.
        behind: how many versions it has not.
        since: when the first of these was committed, in microseconds; None where there is none.
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
    name, position = topic_of(transform).name, channel(transform, warehouse).position()
    head = warehouse.head(transform.table)
    if head is None:
        return Standing(name, -1, 0, None, None, None)
    known = position if position is not None and position.table == head.life else None
    version = -1 if known is None else known.version
    behind = head.version - version
    since = warehouse.committer.committed_at(transform.table, version + 1) if behind else None
    run, at = (None, None) if known is None else (known.run, known.at)
    return Standing(name, version, behind, since, run, at)
