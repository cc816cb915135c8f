"""What was in Kafka, was not brought in, and is there no more."""

from tidemark_streaming.kafka.position import Position

MANY = 5


def between(at: Position, there: Position) -> list[str]:
    """What is lost between where the last arrival stands and what the topics have now, in words.

    Args:
        at: of each partition, what the last arrival brought.
        there: of each partition, from its first offset to its end.
    """
    found: list[str] = []
    for name, before in at.items():
        now = there.get(name)
        if now is None:
            found.append(f"topic '{name}' is gone")
            continue
        if now.id != before.id:
            ends = ", ".join(f"{p}: {end}" for p, (_, end) in before.offsets.items())
            found.append(
                f"topic '{name}' was made anew (its id is {now.id} and was {before.id}), and what "
                f"the old one had after the offsets ({ends}) is not known"
            )
            continue
        for partition, (_, stands) in before.offsets.items():
            low, end = now.offsets.get(partition, (stands, stands))
            if low > stands:
                found.append(
                    f"offsets {stands} to {low - 1} of {name}-{partition}, {low - stands:,} in "
                    "all, were removed by its retention"
                )
            elif end < stands:
                found.append(
                    f"{name}-{partition} ends at {end}, before {stands}, up to which it was read"
                )
    return found


def sentence(source: str, lost: list[str]) -> str:
    """The losses as one sentence, with what can be done."""
    told = "; ".join(lost[:MANY])
    more = f"; and {len(lost) - MANY} more" if len(lost) > MANY else ""
    return (
        f"Records of source '{source}' are gone that were never ingested: {told}{more}. To go on "
        f"with what is there, say `tidemark ingest {source} --accept-loss`."
    )
