"""Watermarks that the rows of an arrival have no say in."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked_class
from tidemark.define.watermarks.strategy import Watermark


@checked_class
@dataclass(frozen=True)
class Perfect(Watermark):
    """History read whole: the watermark stays at minus infinity until the stream ends.

    Nothing is late, and no window fires on time before `tidemark end SOURCE`, or the last arrival
    of a feed that says so, ends the stream.

    Example:
        Perfect()
    """

    def __str__(self) -> str:
        return "none until the stream ends"

    def observe(self, event_time: Column) -> Column:
        return _nothing()

    def reached(self, observed: str | None, given: int | None) -> int | None:
        return None


@checked_class
@dataclass(frozen=True)
class Manual(Watermark):
    """The feed gives the watermark with the arrival; where it gives none, it stays.

    A feed gives it as `watermark` of a `Chunk`, in microseconds since 1970; a scenario by an item
    of its own. One that is before the last has no effect: a watermark never goes back.

    Example:
        Manual()
    """

    def __str__(self) -> str:
        return "given by the feed"

    def observe(self, event_time: Column) -> Column:
        return _nothing()

    def reached(self, observed: str | None, given: int | None) -> int | None:
        return given


def _nothing() -> Column:
    return F.max(F.lit(None).cast("string"))
