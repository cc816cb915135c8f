"""Positions of a Kafka connector: the offsets that an arrival ingested from each partition.

The position is stored, as JSON, only in the timeline, in the row of the arrival:

    {"flights": {"id": "kN4…", "offsets": {"0": [120, 180], "1": [75, 75]}}}

This arrival ingested the offsets 120 to 179 of partition 0 of the topic `flights`, and no offsets
of partition 1. The next arrival continues at 180 and 75. The ID distinguishes the topic from a
topic that was recreated under the same name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Range = tuple[int, int]
"""A range of offsets: the first offset, and the offset after the last."""


@dataclass(frozen=True)
class Topic:
    """A topic's ID, and a range of offsets for each of its partitions."""

    id: str
    offsets: Mapping[int, Range]


Position = Mapping[str, Topic]
"""Topics by name."""

NO_TOPIC = json.dumps({"no topic": True})
"""The position, as JSON, of a poll that found no topic. Its key has a space, which the name of a
topic can't have."""


def to_json(position: Position) -> str:
    """Return a position as JSON."""
    fields = dict[str, object]()
    for name, topic in position.items():
        offsets = {str(partition): list(ends) for partition, ends in topic.offsets.items()}
        fields[name] = {"id": topic.id, "offsets": offsets}
    return json.dumps(fields, separators=(",", ":"))


def parse_position(text: str) -> Position:
    """Parse a position from JSON. If another kind of connector wrote it, return no topics."""
    parsed = json.loads(text)
    position = dict[str, Topic]()
    if not isinstance(parsed, dict):
        return position
    for name, fields in parsed.items():
        # Other connectors have other objects in their positions.
        if isinstance(fields, dict) and fields.keys() == {"id", "offsets"}:
            offsets = dict[int, Range]()
            for partition, (start, end) in fields["offsets"].items():
                offsets[int(partition)] = (start, end)
            position[name] = Topic(fields["id"], offsets)
    return position


def is_kafka_poll(text: str) -> bool:
    """Return whether a position, as JSON, comes from a poll of Kafka."""
    return bool(parse_position(text)) or text == NO_TOPIC


def end_of(position: Position) -> Position:
    """Return an empty position at the end of this one: the same topics, with ranges of length 0."""
    ends = dict[str, Topic]()
    for name, topic in position.items():
        offsets = {partition: (end, end) for partition, (_, end) in topic.offsets.items()}
        ends[name] = Topic(topic.id, offsets)
    return ends


def count_offsets(position: Position) -> int:
    """Return the number of offsets in a position. The number of records may be smaller, because
    some offsets have no record."""
    count = 0
    for topic in position.values():
        count += sum(end - start for start, end in topic.offsets.values())
    return count


def split_ranges(position: Position, rows: int) -> list[Position]:
    """Split the ranges into successive pieces of at most about `rows` offsets.

    Each piece takes a proportional share of every partition, so that all partitions advance at the
    same pace. The first piece has offsets of every nonempty range, so that the watermark knows all
    partitions from the first piece on.
    """
    count = max(-(-count_offsets(position) // rows), 1)
    pieces = list[Position]()
    for number in range(count):
        piece = dict[str, Topic]()
        for name, topic in position.items():
            offsets = dict[int, Range]()
            for partition, offset_range in topic.offsets.items():
                offsets[partition] = _range_part(offset_range, number, count)
            piece[name] = Topic(topic.id, offsets)
        pieces.append(piece)
    return pieces


def _range_part(offsets: Range, n: int, pieces: int) -> Range:
    start = offsets[0]
    length = offsets[1] - offsets[0]
    # The bounds are rounded up, so that a range shorter than the number of pieces has an offset in
    # the first piece.
    return start - (-length * n // pieces), start - (-length * (n + 1) // pieces)


def unfinished_partitions(piece: Position, ranges: Position) -> Iterator[tuple[str, int]]:
    """Yield topic and partition of the ranges in `ranges` that continue after the piece."""
    for name, topic in piece.items():
        for partition, (_, end) in topic.offsets.items():
            if end < ranges[name].offsets[partition][1]:
                yield name, partition


def ranges_by_partition(pieces: Sequence[Position]) -> Iterator[tuple[str, int, list[Range]]]:
    """Yield each topic and partition, with the ranges of the partition in the pieces, in order."""
    for name, topic in pieces[0].items():
        for partition in topic.offsets:
            yield name, partition, [piece[name].offsets[partition] for piece in pieces]
