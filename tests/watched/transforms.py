"""The transforms of the readings and their expectations."""

import tidemark as tm
from helpers.data import support
from helpers.data.landing import SOURCE

by_minute = tm.WindowedTransform(
    name="by_minute",
    description="Readings by sensor and minute.",
    source=SOURCE,
    keys=("sensor",),
    window=tm.Tumbling("1 minute"),
    allowed_lateness=2 * support.MINUTE,
    aggregates={"n": tm.agg.count(), "most": tm.agg.max("value")},
    expectations=(tm.expect.between("n", max_value=3),),
    function=support.same,
)
by_hour = tm.rollup(of=by_minute, name="by_hour", window=tm.Tumbling("1 hour"))
