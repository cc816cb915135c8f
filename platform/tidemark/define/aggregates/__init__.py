"""Aggregates that merge: partial, merge, finish.

A partial says what a set of events contributes; partials of disjoint sets merge into the partial
of their union, in any order; finish turns a partial into the answer. Because they merge, the same
aggregate serves a batch, a stream that adds a little at a time, and a roll-up of small windows
into large ones. Whatever has no such form (a median over all values, say) is refused where it is
defined.

| aggregate | its answer | where there is no value | its partial |
| --- | --- | --- | --- |
| `count()` | how many events | 0 | a number |
| `min(x)`, `max(x)` | exact | null | a value |
| `sum(x)`, `mean(x)` | exact, but for doubles | null | `totals` |
| `variance(x)`, `stddev(x)` | of the sample | null below two values | count, mean, squares |
| `first(x)`, `last(x)` | by event time, then by arrival | null | a value and its place |
| `approx_count_distinct(x)` | within 1.6 % (standard error) | 0 | a sketch of 4 kB |
| `quantile(x, at)` | exact for 10,000 values, then within 0.03 % of `at` | null | a sketch |
| `count_distinct(x)` | exact; null above 10,000 | 0 | a sketch of up to 8 bytes a value |
| `top_k(x, k)` | exact; null above 10,000 different values | [] | each value and its count |
| `collect(x)` | the values in order; the 10,000 least | [] | the same |
| `python(name, x, ...)` | whatever three functions of yours make of it | theirs | theirs |

Each takes a SQL expression over the transform's columns and, as `where`, a SQL condition for the
events that count. Null values are left out by all but `count()`. The answer is the same however the
events are split into partials, but for the order in which doubles are added, and for a `quantile`
of more values than it keeps exactly.
"""

from tidemark.define.aggregates.basic import count, max, mean, min, sum
from tidemark.define.aggregates.bounded import collect, count_distinct, top_k
from tidemark.define.aggregates.combiner import Aggregate
from tidemark.define.aggregates.custom import python
from tidemark.define.aggregates.moments import stddev, variance
from tidemark.define.aggregates.ordered import first, last
from tidemark.define.aggregates.sketch import approx_count_distinct, quantile

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "python",
    "quantile",
    "stddev",
    "sum",
    "top_k",
    "variance",
]
