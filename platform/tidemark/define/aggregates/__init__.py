"""Mergeable aggregates: partial, merge, finish.

A partial is the contribution of a set of events. Partials of disjoint sets merge, in any order,
into the partial of their union; `finish` turns a partial into the result. Partials therefore serve
a batch, a stream that adds a few events at a time, and a roll-up of small windows into large ones.
Anything else, such as the engine's exact median, is refused when the asset is defined.

| aggregate | result | without values | partial |
| --- | --- | --- | --- |
| `count()` | the number of events | 0 | a number |
| `min(x)`, `max(x)` | exact | null | a value |
| `sum(x)` | exact, except for doubles | null | `totals` |
| `mean(x)` | exact, except for doubles | null | `means` |
| `variance(x)`, `stddev(x)` | of the sample | null below two values | count, mean, squares |
| `first(x)`, `last(x)` | by event time, then by arrival | null | a value and its sort key |
| `last_n(x, n)` | exact, in the order of event time | [] | n values and their sort keys |
| `top_n(x, n, by)` | exact; of equal values, the first to arrive | [] | n values and sort keys |
| `approx_count_distinct(x)` | within 1.6 % (standard error) | 0 | a sketch of 4 kB |
| `quantile(x, q)` | exact up to 10,000 values, then within 0.03 % of `q` | null | a sketch |
| `count_distinct(x)` | exact; null above 10,000 | 0 | a sketch of up to 8 bytes a value |
| `top_k(x, k)` | exact; null above 10,000 different values | [] | each value and its count |
| `collect(x)` | the values in order, at most the 10,000 smallest | [] | the same |
| `python(name, x, ...)` | the result of three functions of yours | yours | yours |

Each function takes a SQL expression over the transform's columns and, as `where`, a SQL condition
for the events that count. All except `count()` ignore null values. The result does not depend on
how the events are divided into partials. There are two exceptions: the order in which doubles are
added, and a `quantile` of more values than it keeps exactly.
"""

from tidemark.define.aggregates.arrow_merge import ArrowMerge
from tidemark.define.aggregates.basic import count, max, mean, min, sum
from tidemark.define.aggregates.bounded import collect, count_distinct, top_k
from tidemark.define.aggregates.combiner import Aggregate
from tidemark.define.aggregates.custom import python
from tidemark.define.aggregates.moments import stddev, variance
from tidemark.define.aggregates.ordered import first, last, last_n, top_n
from tidemark.define.aggregates.sketch import approx_count_distinct, quantile

__all__ = [
    "Aggregate",
    "ArrowMerge",
    "approx_count_distinct",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "last_n",
    "max",
    "mean",
    "min",
    "python",
    "quantile",
    "stddev",
    "sum",
    "top_k",
    "top_n",
    "variance",
]
