"""Triggers: when a window's result is published.

A window fires ON_TIME once, at the first arrival whose watermark passes its end, and LATE at each
arrival that brings it admitted late events. It is final when the watermark has passed its end by
the allowed lateness: nothing will change it any more.

Every event joins a *slot*, the unit of firing that its own row tells: all on-time events of a
window share slot 0, late events the slot of their arrival. A slot fires whole or not at all, so
which slots of a window have fired, as of an arrival, is a function of the log alone.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark import judge

ON_TIME, LATE = "ON_TIME", "LATE"


def slot(verdict: Column, arrival: Column) -> Column:
    """The slot of an event: BIGINT, 0 for on-time events, otherwise its arrival's number plus 1."""
    return F.when(verdict == judge.ON_TIME, F.lit(0)).otherwise(arrival + 1).cast("bigint")


def fired(verdict: Column, closed: Column) -> Column:
    """Whether a slot has fired, given whether the watermark has passed its window's end."""
    return (verdict != judge.ON_TIME) | closed
