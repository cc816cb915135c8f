"""The summary of a chunk's rows, from which an arrival gets its numbers and its watermark."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ChunkSummary:
    """A summary of the rows of one chunk. Event times are in microseconds.

    Args:
        rows: the number of events, without dead letters.
        observed: the values from which the watermark is computed, as `Watermark.advance` takes
            them.
        reason: the reason of a dead letter: the first in alphabetical order, so that it is the same
            in every run.
        has_several_reasons: whether the dead letters have different reasons.
        unreadable_marks: the number of events on which the watermark's expression failed.
        undeclared: fields that the source does not declare.
        future_timestamps: the number of events dated later than the source accepts.
    """

    rows: int = 0
    dead_letters: int = 0
    bytes: int = 0
    min_event_time: int | None = None
    max_event_time: int | None = None
    observed: str | None = None
    reason: str | None = None
    has_several_reasons: bool = False
    unreadable_marks: int = 0
    undeclared: tuple[str, ...] = ()
    future_timestamps: int = 0

    def with_dead_letters(
        self, count: int, size: int, first_reason: str, last_reason: str
    ) -> "ChunkSummary":
        """Return the summary with the chunk's dead letters.

        Args:
            count: the number of dead letters.
            size: their size in bytes.
            first_reason, last_reason: the first and the last of their reasons in alphabetical
                order.
        """
        return replace(
            self,
            dead_letters=count,
            bytes=self.bytes + size,
            reason=first_reason,
            has_several_reasons=first_reason != last_reason,
        )
