"""A changed definition of `PER_MINUTE`: other windows, columns and expectations."""

from dataclasses import replace

from helpers.data.support import PER_MINUTE
from tidemark.define import aggregates as agg
from tidemark.define.windows import Tumbling
from tidemark.expect import matches_log, unique_key

WIDER = replace(
    PER_MINUTE,
    window=Tumbling("2 minutes"),
    aggregates={
        **{k: a for k, a in PER_MINUTE.aggregates.items() if k != "least"},
        "newest": agg.last("value"),
    },
    expectations=(matches_log(), unique_key()),
)
