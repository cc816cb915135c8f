"""Convert times without a time zone to instants, as the engine's `to_utc_timestamp` does.

A time that occurs twice, because the clock goes back, becomes the first of the two instants. A time
that does not occur, because the clock goes forward, is shifted forward by as much as the clock.
"""

from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.store.rows import INSTANT, OUT_OF_RANGE_ERRORS
from tidemark.store.rows import compute as pc


def zone_of(name: str, owner: str) -> ZoneInfo:
    """Return a time zone by its name.

    Args:
        owner: the option or object that has the name, for the error message.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise DefinitionError(
            f"{owner} has an unknown time zone, '{name}': use a name of the IANA database, such as "
            "'UTC' or 'Europe/Berlin'."
        ) from None


def in_utc(times: "pa.ChunkedArray[Any]", zone: ZoneInfo) -> "pa.ChunkedArray[Any]":
    """Return the instants, in microseconds, at which clocks in a zone show the given times."""
    local = pc.cast(times, pa.timestamp("us"), safe=False)
    distinct = pc.unique(local)
    instants = pa.array([_to_instant(time, zone) for time in distinct], pa.int64())
    return instants.cast(INSTANT).take(pc.index_in(local, distinct))


def _to_instant(time: "pa.Scalar[Any]", zone: ZoneInfo) -> int | None:
    micros: int | None = time.cast(pa.int64()).as_py()
    if micros is None:
        return None
    try:
        offset = time.as_py().replace(tzinfo=zone).utcoffset()
    except OUT_OF_RANGE_ERRORS:
        # The time is outside the years 1 to 9999, so it is invalid in every zone.
        return micros
    return micros - round(offset.total_seconds() * 1_000_000)
