"""Where an outbox stands: which version of the published table the topic has.

It is a record of the topic of positions, by the asset's name, and is written in the transaction
that brings the panes out: the topic never has the one without the other, whatever is killed. Of
which database the asset is, it says too: records tell assets apart by their names alone.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Position:
    """How far an asset's table has been brought out.

    Args:
        table: the identity of the published table.
        version: its last version of which the topic has the changes.
        topic: the topic's id, which another one of its name has not.
        partitions: how many it had, by which keys are placed.
        epoch: since when, in microseconds, changes follow each other without a gap.
        seq: the number of the newest commit that is out; -1 before any.
        run: the id of its run, where that is known.
        at: when this was written, in microseconds.
        place: the database of the table, and where it is; None of one that was written before
            that was told.
        state: the life of the state whose commits have these numbers, empty where there was none;
            None of one that was written before that was told.
    """

    table: str
    version: int
    topic: str
    partitions: int
    epoch: int
    seq: int
    run: str | None
    at: int
    place: str | None = None
    state: str | None = None

    def written(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()


def read(text: bytes | None) -> Position | None:
    """The position of that JSON; None where there is none."""
    if text is None:
        return None
    told: dict[str, Any] = json.loads(text)
    return Position(**told)
