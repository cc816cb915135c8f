"""Watermark strategies that do not depend on an arrival's rows."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.define.watermarks.strategy import Watermark


@checked_class
@dataclass(frozen=True)
class Perfect(Watermark):
    """A watermark for complete history: it stays at minus infinity until the stream ends.

    Nothing is late, and no window fires ON_TIME before the stream ends. The stream ends with
    `tidemark close SOURCE`, or with an arrival that the connector marks as the last.

    Example:
        Perfect()
    """

    def __str__(self) -> str:
        return "none until the source ends"

    def observe(self, event_time: Column) -> Column:
        return _no_observation()

    def arrival_watermark(
        self, observed: str | None, connector_watermark: int | None
    ) -> int | None:
        return None


@checked_class
@dataclass(frozen=True)
class Manual(Watermark):
    """A watermark that the connector gives with each arrival.

    A connector sets `watermark` of a `Chunk`, in microseconds since 1970; a scenario sets
    `watermark` of an arrival. If an arrival has none, the watermark does not move. A value before
    the current watermark has no effect, because a watermark never goes back.

    Example:
        Manual()
    """

    def __str__(self) -> str:
        return "set by the connector"

    def observe(self, event_time: Column) -> Column:
        return _no_observation()

    def arrival_watermark(
        self, observed: str | None, connector_watermark: int | None
    ) -> int | None:
        return connector_watermark


def _no_observation() -> Column:
    return F.max(F.lit(None).cast("string"))
