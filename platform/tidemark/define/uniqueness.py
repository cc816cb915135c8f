"""What tells that an event is one that came before, by the id that its sender gave it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import describe, duration
from tidemark.define.helper_columns import helper

MARK = helper("duplicate")
"""The column, BOOLEAN, that tells a duplicate while events are judged."""


@checked_class
@dataclass(frozen=True, init=False)
class Unique:
    """Count an event once, though it may be sent again.

    An event is a duplicate if the log has an earlier one, by arrival and position, of the same id
    and at most `within` before or after it in event time. One without an id, or without an event
    time, is none.

    Example:
        Unique("trip", within="1 day")
        Unique(("sensor", "sequence"), within="1 hour")

    Args:
        by: the column, or columns, of the source that tell one event from another.
        within: the horizon: two events of one id are the same event if their event times are at
            most so far apart. Zero is enough where a copy has the event time of the original.

    Raises:
        DefinitionError: no column, or a negative horizon.
    """

    by: tuple[str, ...]
    within: int

    def __init__(self, by: str | Sequence[str], within: str | timedelta) -> None:
        object.__setattr__(self, "by", (by,) if isinstance(by, str) else tuple(by))
        object.__setattr__(self, "within", duration(within))
        if not self.by:
            raise DefinitionError("Unique needs the column that tells one event from another.")
        if self.within < 0:
            raise DefinitionError(f"The horizon of Unique is zero or more, not '{within}'.")

    def __str__(self) -> str:
        return f"{', '.join(self.by)} within {describe(self.within)}"
