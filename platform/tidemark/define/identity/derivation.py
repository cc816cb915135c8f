"""Compute the fingerprint of a derivation: everything that decides the rows of a derived source.

| part | hashed |
| --- | --- |
| the derivation | its kind and its arguments (`deciding_arguments`) |
| each base | its name, its event time, and its `max_future_skew` |

The columns are left out, because an event log follows added columns, and refuses all other changes.
`idle` is left out, because each step records its effect.
"""

from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.identity.fingerprint import compute_digest
from tidemark.define.source import Source


def derivation_fingerprint(source: DerivedSource) -> str:
    """Return the fingerprint of a derived source's derivation: twelve hexadecimal digits."""
    derivation = source.derivation
    kind = type(derivation).__name__
    return compute_digest(
        [
            kind,
            derivation.deciding_arguments,
            [_describe_base(base) for base in source.base_sources],
        ]
    )


def _describe_base(base: Source) -> list[object]:
    return [base.name, base.event_time, base.future_skew]
