"""The transform of the domain and its expectations."""

from dataclasses import replace

import tidemark as tm
from helpers.data import support

gated = replace(
    support.PER_MINUTE,
    name="gated",
    expectations=(
        tm.expect.between("most", max_value=5),
        tm.expect.not_null("sensor", level="warning"),
        tm.expect.matches_log(),
    ),
)
