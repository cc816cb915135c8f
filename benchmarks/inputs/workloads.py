"""Define the workloads: tumbling, sliding, and session windows over the same clicks.

Each workload is defined twice, as a Tidemark asset and as a Spark window for the hand-written
queries. It has a target for the ratio of Tidemark's time to the time of these queries.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.inputs.events import SOURCE
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding, Tumbling

VALUES = ("n", "total", "average", "least", "most")
MANY = 100_000_000


@dataclass(frozen=True)
class Workload:
    """One kind of window.

    Args:
        name: the name on the command line.
        asset: the definition that Tidemark runs.
        window: Spark's window of an event.
        updates: true if Spark can emit windows before they close, to be merged into the table;
            false if Spark can only append closed windows.
        backfill, increments: the target ratios to the time of the hand-written query.
        backfill_of_many: the target ratio of a backfill of 100,000,000 events or more, if it
            differs.
    """

    name: str
    asset: WindowedTransform
    window: Callable[[], Column]
    updates: bool
    backfill: float
    increments: float
    backfill_of_many: float | None = None

    def backfill_aim(self, events: int) -> float:
        """Return the target ratio of a backfill of a number of events."""
        if events >= MANY and self.backfill_of_many is not None:
            return self.backfill_of_many
        return self.backfill

    def by_hand(self, rows: DataFrame) -> DataFrame:
        """Return the windows of the rows, computed by a hand-written query."""
        return (
            rows.groupBy(self.window().alias("window"), "key")
            .agg(
                F.count("*").alias("n"),
                F.sum("value").alias("total"),
                F.avg("value").alias("average"),
                F.min("value").alias("least"),
                F.max("value").alias("most"),
            )
            .select(F.col("window.start").alias("window_start"), "key", *VALUES)
        )


def same(rows: DataFrame) -> DataFrame:
    return rows


PER_MINUTE = WindowedTransform(
    name="clicks_per_minute",
    description="Clicks by key and minute.",
    source=SOURCE,
    keys=("key",),
    window=Tumbling("1 minute"),
    allowed_lateness=0,
    aggregates={
        "n": agg.count(),
        "total": agg.sum("value"),
        "average": agg.mean("value"),
        "least": agg.min("value"),
        "most": agg.max("value"),
    },
    function=same,
)

WORKLOADS = (
    Workload(
        name="tumbling",
        asset=PER_MINUTE,
        window=lambda: F.window("ts", "1 minute"),
        updates=True,
        backfill=1.4,
        increments=0.4,
        backfill_of_many=1.2,
    ),
    Workload(
        name="sliding",
        asset=replace(PER_MINUTE, name="clicks_of_ten", window=Sliding("10 minutes", "1 minute")),
        window=lambda: F.window("ts", "10 minutes", "1 minute"),
        updates=True,
        backfill=0.7,
        increments=0.4,
    ),
    Workload(
        name="sessions",
        asset=replace(PER_MINUTE, name="visits", window=Session("30 seconds")),
        window=lambda: F.session_window("ts", "30 seconds"),
        updates=False,
        backfill=1.5,
        increments=0.5,
    ),
)
