"""Which windows a replay is about: those in which events of some arrivals lie."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.pane import judged
from tidemark.define.transform import WindowedTransform
from tidemark.store.log import Log
from tidemark.store.ranges import Ranges, joined


def reached(log: Log, transform: WindowedTransform, since: int, through: int) -> Ranges | None:
    """The starts of the windows that hold an event of the arrivals [since, through], of sessions
    those of the events; None where none does.

    Events count as they came: also those that the function leaves out now, as an earlier one may
    have counted them.
    """
    plain = replace(transform, function=_as_it_came, keys=(), unique=None, expectations=())
    events = judged(log, plain, since - 1, through).where("window_start IS NOT NULL")
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    # Where windows overlap, only a range of one instant holds the starts of no others.
    last = end if transform.window.disjoint else start + F.lit(1)
    spans = events.select(start.alias("start"), last.alias("end")).distinct().collect()
    return joined((s, e) for s, e in spans) or None


def _as_it_came(rows: DataFrame) -> DataFrame:
    return rows
