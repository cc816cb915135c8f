"""Detect records that Kafka deleted before they were ingested."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemark_streaming.base.kafka_position import Position

_SHOWN_LOSSES = 5


class Loss(NamedTuple):
    """Records of a topic or a partition that Kafka deleted before they were ingested.

    Args:
        message: the description of the loss for error messages.
        offsets: the number of lost offsets; 0 if the number can't be known.
    """

    message: str
    offsets: int = 0


def find_losses(ingested: Position, available: Position) -> list[Loss]:
    """Return the losses between the last arrival's position and the current state of the topics.

    Args:
        ingested: for each partition, the offsets that the last arrival ingested.
        available: for each partition, the offsets from the first to the end offset.
    """
    losses: list[Loss] = []
    for name, before in ingested.items():
        current = available.get(name)
        if current is None:
            losses.append(Loss(f"topic '{name}' was deleted"))
            continue
        if current.id != before.id:
            ends = ", ".join(f"{p}: {end}" for p, (_, end) in before.offsets.items())
            message = (
                f"topic '{name}' was deleted and recreated (its ID was {before.id} and is now "
                f"{current.id}); how many records the old topic had after the ingested offsets "
                f"({ends}) is unknown"
            )
            losses.append(Loss(message))
            continue
        for partition, (low, end) in current.offsets.items():
            # A partition that is missing in `at` is new and began at offset 0.
            _, read_to = before.offsets.get(partition, (0, 0))
            if low > read_to:
                message = (
                    f"offsets {read_to} to {low - 1} of {name}-{partition} ({low - read_to:,} in "
                    "all) were deleted by retention or on request"
                )
                losses.append(Loss(message, low - read_to))
            elif end < read_to:
                message = (
                    f"{name}-{partition} ends at offset {end}, but was already read up to {read_to}"
                )
                losses.append(Loss(message))
    return losses


def error_message(source: str, lost: Sequence[Loss]) -> str:
    """Return the error message that lists the losses and the command that accepts them."""
    shown = "; ".join(loss.message for loss in lost[:_SHOWN_LOSSES])
    more = f"; and {len(lost) - _SHOWN_LOSSES:,} more losses" if len(lost) > _SHOWN_LOSSES else ""
    return (
        f"Kafka deleted records of source '{source}' before they were ingested: {shown}{more}. To "
        f"continue without them, run `tidemark ingest {source} --allow-data-loss`."
    )
