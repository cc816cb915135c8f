"""Admission control: limit how many of the waiting arrivals one run processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidemark.base.errors import DefinitionError
from tidemark.store.event_log.arrival import Arrival


@dataclass(frozen=True)
class Admission:
    """Upper limits of one run; None means unlimited. Arrivals beyond a limit wait for the next run.

    An arrival is never split, and every run takes at least one arrival.

    Args:
        arrivals: number of arrivals.
        rows: number of events in the arrivals, as recorded in the timeline.
        bytes: size of the input from which the arrivals were read.
    """

    arrivals: int | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if limit is not None and limit < 1:
                raise DefinitionError(
                    f"The limit of {name} in a run must be at least 1 (got {limit})."
                )

    @classmethod
    def from_limit(cls, limit: "int | Admission | None") -> "Admission":
        """Return `limit` as an `Admission`; an integer limits the number of arrivals."""
        if isinstance(limit, Admission):
            return limit
        return cls(limit)

    def __bool__(self) -> bool:
        return any(limit is not None for limit in vars(self).values())

    def admit_arrivals(self, waiting: Sequence[Arrival]) -> tuple[Sequence[Arrival], str | None]:
        """Return the leading arrivals that fit, and the name of the limit that excludes the rest.

        The name is None if all fit.
        """
        sizes = {
            "arrivals": [1] * len(waiting),
            "rows": [arrival.rows for arrival in waiting],
            "bytes": [arrival.bytes for arrival in waiting],
        }
        admitted = len(waiting)
        limited_by = None
        for name, arrival_sizes in sizes.items():
            limit = getattr(self, name)
            if limit is None:
                continue
            totals = accumulate(arrival_sizes)
            fitting = sum(total <= limit for total in totals)
            if fitting < admitted:
                # A run takes at least one arrival, or it would never advance.
                admitted = max(fitting, 1)
                limited_by = name
        if admitted == len(waiting):
            limited_by = None
        return waiting[:admitted], limited_by


ALL = Admission()
"""No limit: take all waiting arrivals."""
