"""Admission: how much of what waits a run takes in."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidemark.base.errors import DefinitionError
from tidemark.store.arrival import Arrival


@dataclass(frozen=True)
class Admission:
    """What a run takes in at most; None is no limit. What is beyond waits for the next run.

    An arrival is taken whole, and one always.

    Args:
        arrivals: how many.
        rows: events of these, as the timeline has them.
        bytes: their size, as it was read.

    Raises:
        DefinitionError: a limit below 1.
    """

    arrivals: int | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if limit is not None and limit < 1:
                raise DefinitionError(f"A run takes 1 or more {name}, not {limit}.")

    @classmethod
    def of(cls, limit: "int | Admission | None") -> "Admission":
        """The same, of a limit that may be so many arrivals."""
        return limit if isinstance(limit, Admission) else cls(limit)

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in vars(self).values())

    def admit(self, waiting: Sequence[Arrival]) -> tuple[Sequence[Arrival], str | None]:
        """The first ones of those that wait, and which limit leaves the others; None where none
        does."""
        sizes = {
            "arrivals": [1] * len(waiting),
            "rows": [a.rows for a in waiting],
            "bytes": [a.bytes for a in waiting],
        }
        taken, by = len(waiting), None
        for name, each in sizes.items():
            limit = getattr(self, name)
            if limit is not None:
                fitting = sum(total <= limit for total in accumulate(each))
                taken, by = (max(fitting, 1), name) if fitting < taken else (taken, by)
        return waiting[:taken], by if taken < len(waiting) else None


ALL = Admission()
"""All that waits."""
