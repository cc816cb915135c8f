"""Recognize duplicate events by the ID that their sender gave them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import checked_duration, format_duration
from tidemark.define.helper_columns import name_helper

MARK = name_helper("duplicate")
"""The BOOLEAN column that marks a duplicate while events are classified."""


@checked_class
@dataclass(frozen=True, init=False)
class Deduplicate:
    """Deduplication: an event counts once, even if it is sent again.

    An event is a duplicate if the log has an earlier event with the same ID, and their event times
    are at most `within` apart. Events are ordered by arrival and position. An event without an ID,
    or without an event time, is never a duplicate.

    Example:
        Deduplicate("trip", within="1 day")
        Deduplicate(("sensor", "sequence"), within="1 hour")

    Args:
        by: the column, or columns, of the source that identify an event.
        within: the horizon: two events with one ID are the same event if their event times are at
            most this far apart. Zero is enough if a copy has the event time of the original.

    Raises:
        DefinitionError: no column is given, or the horizon is negative.
    """

    by: tuple[str, ...]
    within: int

    def __init__(self, by: str | Sequence[str], within: str | timedelta) -> None:
        object.__setattr__(self, "by", (by,) if isinstance(by, str) else tuple(by))
        horizon = checked_duration("Deduplicate: `within`", within, zero=True)
        object.__setattr__(self, "within", horizon)
        if not self.by:
            raise DefinitionError(
                "Deduplicate: `by` must name at least one column that identifies an event."
            )

    def __str__(self) -> str:
        return f"{', '.join(self.by)} within {format_duration(self.within)}"
