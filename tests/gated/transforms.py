"""The transform of the domain and its expectations."""

from dataclasses import replace

from helpers.data import support
from tidemark import quality as q

gated = replace(
    support.PER_MINUTE,
    name="gated",
    expectations=(
        q.between("most", most=5),
        q.not_null("sensor", level="warning"),
        q.matches_log(),
    ),
)
