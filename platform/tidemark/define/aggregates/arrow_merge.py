"""Merge and finish partials in memory, with Arrow, with the same result as in the engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute

from tidemark.base.arguments import checked_class

compute: Any = pyarrow.compute
"""Arrow's compute functions. Most are created at import time: type checkers do not see them."""

Array = Any
"""A numpy or Arrow array."""

MergeFunction = Literal["sum", "min", "max"]


def _accept_all(partials: Array) -> bool:
    return True


def return_first(merged: Array, *further: Array) -> Array:
    """Return the first merged array: the `finish` of an aggregate for which it is the result."""
    return merged


def zero_slack(merged: Array, *further: Array) -> Array:
    """Return 0.0 for each value: the counterpart of `combiner.no_slack`."""
    return compute.multiply(compute.cast(compute.is_valid(merged), "double"), 0.0)


@checked_class
@dataclass(frozen=True)
class ArrowMerge:
    """Merges an aggregate's partials in memory, which takes milliseconds for a few windows.

    A query to the engine takes tenths of a second, even for very few rows. If all aggregates of an
    asset have an `ArrowMerge`, runs with few partials need no such query. The results must be equal
    to those of the aggregate's `merge` and `finish`, and have the same types. Partials that Arrow
    merges in another way than the engine are left to the engine: integers and decimals whose sum
    might overflow, and minimums and maximums of NaN, of -0.0, and of types that Arrow orders in
    another way.

    Example:
        import pyarrow.compute as pc

        agg.Aggregate(
            "spread(celsius)",
            partial=lambda: F.struct(F.min("celsius").alias("low"), F.max("celsius").alias("high")),
            merge=lambda p: F.struct(F.min(p["low"]).alias("low"), F.max(p["high"]).alias("high")),
            finish=lambda p: p["high"] - p["low"],
            arrow_merge=agg.ArrowMerge(
                {"low": "min", "high": "max"}, finish=lambda low, high: pc.subtract(high, low)
            ),
        )

    Args:
        functions: `"sum"`, `"min"` or `"max"`, which skip nulls; their result without values is
            null. If a partial is a struct, a function for each field that `finish` or `slack`
            needs.
        finish: takes the merged partials of some windows, as one Arrow array for each function, and
            returns the results as an Arrow array. By default, the first array is the result.
        slack: takes the same arrays, and returns the same as the aggregate's `slack`. It is
            required if the aggregate has a `slack`.
        accepts: takes partials as an Arrow array, and returns False if only the engine can merge
            them. It must return False if a result might be `overflowed`.
    """

    functions: MergeFunction | Mapping[str, MergeFunction]
    finish: Callable[..., Any] = return_first
    slack: Callable[..., Any] | None = None
    accepts: Callable[[Any], bool] = _accept_all
