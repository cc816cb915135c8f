"""Position of a sink writer: the version of a published table up to which a topic has all changes.

The position is a record in the topic of positions, with the asset's name as the key. The
transaction that publishes the panes also writes the position, so a kill can't separate the two. The
position also names the asset's database, because records identify an asset by its name only.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Position:
    """How far the changes of an asset's table have been published to its topic.

    Args:
        table: the ID of the published table.
        version: the last version of the table whose changes the topic has.
        topic: the topic's ID, which changes if the topic is recreated.
        partitions: the number of partitions, which determines the partition of a key.
        epoch: the start time of the uninterrupted sequence of changes, in microseconds.
        commit_number: the number of the newest published commit; -1 before the first.
        run: the ID of that commit's run, if known.
        at: the time at which this position was written, in microseconds.
        place: the location and name of the table's database.
        state: the ID of the state that numbered the commits; empty if there was none.
        version_id: the identity of the version (`TableAccess.version_id`); empty if it is unknown.
    """

    table: str
    version: int
    topic: str
    partitions: int
    epoch: int
    commit_number: int
    run: str | None
    at: int
    place: str
    state: str
    version_id: str = ""

    def to_json(self) -> bytes:
        """Return the position as JSON."""
        return json.dumps(asdict(self)).encode()


def parse_position(text: bytes | None) -> Position | None:
    """Parse a position. Return None if `text` is None."""
    if text is None:
        return None
    fields: dict[str, Any] = json.loads(text)
    return Position(**fields)
