"""Find the step after which a row is settled, by the effective watermarks of the bases.

The searches run in a worker of the engine. A join on an inequality would compare each row with each
watermark.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY


def find_settling_step(
    instant: Column, before: int | None, advances: Sequence[tuple[int, int]]
) -> Column:
    """Return the index of the first step after which the watermark is greater than an instant.

    It is -1 if the watermark was greater before these steps, and null if it is not yet, or if the
    instant is null.

    Args:
        instant: BIGINT microseconds.
        before: the watermark before these steps.
        advances: the watermarks that it reaches in these steps, in order, each with its step.
    """
    known = [*([] if before is None else [(before, -1)]), *advances]
    marks = np.array([mark for mark, _ in known], np.int64)
    steps = pa.array([*(step for _, step in known), None], pa.int32())

    # Spark infers the kind of function, and warns if it is given, which its stubs require.
    @F.arrow_udf("int")  # pyright: ignore[reportCallIssue]
    def find(instants: pa.Array) -> pa.Array:
        # A source that has ended is past every instant, however long it is waited for.
        ends = np.minimum(instants.fill_null(0).to_numpy(), INFINITY - 1)
        ranks = np.searchsorted(marks, ends, side="right")
        return steps.take(pa.array(ranks, mask=instants.is_null().to_numpy(zero_copy_only=False)))

    return find(instant)


def find_raised_watermark(arrival: Column, raised: Sequence[tuple[int, int]]) -> Column:
    """Return the watermark that a heartbeat before an arrival has raised; null if none has.

    Args:
        arrival: the number of the base's arrival.
        raised: the raised watermarks of the base, each with the number of the arrival.
    """
    numbers = np.array([number for number, _ in raised], np.int64)
    marks = pa.array([None, *(mark for _, mark in raised)], pa.int64())

    @F.arrow_udf("bigint")  # pyright: ignore[reportCallIssue]
    def find(arrivals: pa.Array) -> pa.Array:
        return marks.take(pa.array(np.searchsorted(numbers, arrivals.to_numpy(), side="left")))

    return find(arrival)
