"""Find the step after which the watermark of a base is past an instant, for each row."""

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

    The search runs in a worker of the engine. A join on two inequalities would compare each row
    with each watermark.

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
