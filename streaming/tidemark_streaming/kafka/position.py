"""Where a feed stands in Kafka: for each partition, which offsets an arrival brought.

The timeline keeps it with the arrival, as JSON, and it is the only position there is:

    {"flights": {"id": "kN4…", "offsets": {"0": [120, 180], "1": [75, 75]}}}

The arrival brought the offsets from 120 to before 180 of partition 0 of `flights`, and none of
partition 1; the next one goes on at 180 and 75. The topic's id tells it from one made anew under
its name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Range = tuple[int, int]
"""Offsets: the first, and the one after the last."""


@dataclass(frozen=True)
class Topic:
    """The topic's id, and ranges of its partitions."""

    id: str
    offsets: Mapping[int, Range]


Position = Mapping[str, Topic]
"""By topic."""

NO_TOPIC = json.dumps({"no topic": True})
"""As JSON, that of a look that found no topic; none can be named so."""


def written(position: Position) -> str:
    """The position as JSON."""
    plain = {
        name: {"id": topic.id, "offsets": {str(p): list(r) for p, r in topic.offsets.items()}}
        for name, topic in position.items()
    }
    return json.dumps(plain, separators=(",", ":"))


def read(text: str) -> Position:
    """The position of that JSON; of one that another kind of feed has written, no topic."""
    told = json.loads(text)
    return {
        name: Topic(topic["id"], {int(p): (r[0], r[1]) for p, r in topic["offsets"].items()})
        for name, topic in (told.items() if isinstance(told, dict) else ())
        if isinstance(topic, dict)
    }


def looked(text: str) -> bool:
    """Whether a position, as JSON, is of a look at Kafka."""
    return bool(read(text)) or text == NO_TOPIC


def standing(position: Position) -> Position:
    """Where it ends, as a position that brings nothing."""
    return {
        name: Topic(topic.id, {p: (end, end) for p, (_, end) in topic.offsets.items()})
        for name, topic in position.items()
    }


def count(position: Position) -> int:
    """How many offsets it spans: as many records, or more, as some hold none."""
    return sum(end - start for topic in position.values() for start, end in topic.offsets.values())


def cut(position: Position, rows: int) -> list[Position]:
    """The ranges in successive pieces of at most about `rows` offsets.

    Of each partition a piece takes its share, so that all get on at the same pace. The first piece
    has something of each that has anything: all are heard of at once.
    """
    pieces = max(-(-count(position) // rows), 1)
    return [
        {
            name: Topic(topic.id, {p: _part(r, n, pieces) for p, r in topic.offsets.items()})
            for name, topic in position.items()
        }
        for n in range(pieces)
    ]


def _part(whole: Range, n: int, pieces: int) -> Range:
    start, length = whole[0], whole[1] - whole[0]
    # Rounded up: a short range is in the first pieces, a long one in all.
    return start - (-length * n // pieces), start - (-length * (n + 1) // pieces)


def unfinished(piece: Position, whole: Position) -> Iterator[tuple[str, int]]:
    """Topic and partition of the ranges that go on after a piece of them."""
    for name, topic in piece.items():
        for partition, (_, end) in topic.offsets.items():
            if end < whole[name].offsets[partition][1]:
                yield name, partition


def spans(pieces: Sequence[Position]) -> Iterator[tuple[str, int, list[Range]]]:
    """Topic and partition, with its range in each of the pieces of a position."""
    for name, topic in pieces[0].items():
        for partition in topic.offsets:
            yield name, partition, [piece[name].offsets[partition] for piece in pieces]
