"""The rules of times that every record format follows.

A time without a time zone becomes a TIMESTAMP only in a zone that the format names. A time finer
than microseconds fits a column only if its extra digits are zeros, or if the format truncates
them. Otherwise the record is a dead letter, or the file is refused.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.store.rows import compute as pc
from tidemark_streaming.base.local_times import in_utc, zone_of

TRUNCATE = "truncate"
"""The value of `finer` with which digits beyond microseconds are dropped."""

ZONE_OPTION, FINER_OPTION = "timeZone", "finer"
"""The options of files and of JSON. Avro has the arguments `time_zone` and `finer`."""


@dataclass(frozen=True)
class TimeRules:
    """How a format treats times that do not fit a column as they are.

    Args:
        zone: the zone of times without a time zone; without it, they are refused.
        finer: `truncate` to drop the digits of times beyond microseconds; without it, such times
            are refused unless the digits are zeros.
        owner: the format that has the rules, for error messages.

    Raises:
        DefinitionError: a value is not valid.
    """

    zone: str | None = None
    finer: str | None = None
    owner: str = "The options of times"

    def __post_init__(self) -> None:
        if self.zone is not None:
            zone_of(self.zone, self.owner)
        if self.finer not in (None, TRUNCATE):
            raise DefinitionError(
                f"{self.owner}: `{FINER_OPTION}` must be '{TRUNCATE}', which drops the digits of "
                f"times beyond microseconds, or be omitted (got '{self.finer}')."
            )

    @property
    def is_truncating(self) -> bool:
        """Return whether the digits of times beyond microseconds are dropped."""
        return self.finer is not None

    def to_utc(self, times: Any) -> Any:  # noqa: ANN401 (an array or a chunked array)
        """Return the instants of times without a time zone. There must be a zone."""
        assert self.zone is not None
        return in_utc(times, zone_of(self.zone, self.owner))


NO_RULES = TimeRules()
"""Times that do not fit a column as they are, are refused."""


def floor_to_micros(nanos: Any) -> Any:  # noqa: ANN401 (an array or a chunked array)
    """Return nanoseconds since 1970 as microseconds, both as integers. They are truncated to the
    past, also before 1970."""
    micros = pc.divide(nanos, 1000)
    is_later = pc.greater(pc.multiply(micros, 1000), nanos)
    return pc.subtract(micros, pc.cast(is_later, pa.int64()))
