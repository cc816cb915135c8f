"""The transforms of the readings and their expectations."""

from helpers.data import support
from helpers.data.landing import SOURCE
from tidemark import aggregate as agg
from tidemark import quality as q
from tidemark.rollup import rollup
from tidemark.transform import WindowedTransform
from tidemark.window import Tumbling

by_minute = WindowedTransform(
    name="by_minute",
    description="Readings by sensor and minute.",
    source=SOURCE,
    keys=("sensor",),
    window=Tumbling("1 minute"),
    allowed_lateness=2 * support.MINUTE,
    aggregates={"n": agg.count(), "most": agg.max("value")},
    expectations=(q.between("n", most=3),),
    function=support.same,
)
by_hour = rollup(of=by_minute, name="by_hour", window=Tumbling("1 hour"))
