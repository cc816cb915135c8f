"""What was in Kafka, was not brought in, and is there no more."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark_streaming.kafka.position import Position

MANY = 5


class Loss(NamedTuple):
    """What of a topic, or of a partition, is gone.

    Args:
        said: in words.
        offsets: how many of its offsets; 0 where nobody can know.
    """

    said: str
    offsets: int = 0


def between(at: Position, there: Position) -> list[Loss]:
    """What is lost between where the last arrival stands and what the topics have now.

    Args:
        at: of each partition, what the last arrival brought.
        there: of each partition, from its first offset to its end.
    """
    found: list[Loss] = []
    for name, before in at.items():
        now = there.get(name)
        if now is None:
            found.append(Loss(f"topic '{name}' is gone"))
            continue
        if now.id != before.id:
            ends = ", ".join(f"{p}: {end}" for p, (_, end) in before.offsets.items())
            told = (
                f"topic '{name}' was made anew (its id is {now.id} and was {before.id}), and what "
                f"the old one had after the offsets ({ends}) is not known"
            )
            found.append(Loss(told))
            continue
        for partition, (low, end) in now.offsets.items():
            # A partition that is new has begun since, with the offset 0.
            _, stands = before.offsets.get(partition, (0, 0))
            if low > stands:
                told = (
                    f"offsets {stands} to {low - 1} of {name}-{partition}, {low - stands:,} in "
                    "all, were removed by its retention"
                )
                found.append(Loss(told, low - stands))
            elif end < stands:
                told = f"{name}-{partition} ends at {end}, before {stands}, up to which it was read"
                found.append(Loss(told))
    return found


def sentence(source: str, lost: Sequence[Loss]) -> str:
    """The losses as one sentence, with what can be done."""
    told = "; ".join(loss.said for loss in lost[:MANY])
    more = f"; and {len(lost) - MANY} more" if len(lost) > MANY else ""
    return (
        f"Records of source '{source}' are gone that were never ingested: {told}{more}. To go on "
        f"with what is there, say `tidemark ingest {source} --accept-loss`."
    )
