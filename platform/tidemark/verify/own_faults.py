"""Faults of Tidemark itself: expectations whose failure no data explain.

Whatever a source sends, a window holds the events of the log, and there is one row of it. Where
`complete()` or `unique()` fails, Tidemark lost or doubled something, or somebody else wrote to its
tables.
"""

from tidemark.define.definition import Definition
from tidemark.define.expectations.windowed import complete, unique

OWN = frozenset({complete().name, unique().name})
"""The names of these expectations."""

VERDICT = "a fault of Tidemark, not of the data"


def remedy(transform: Definition) -> str:
    """What to do about windows of an asset that fail one of them, in a sentence."""
    name = transform.name
    anew = f"`tidemark backfill {name}` computes them anew from the log"
    if transform.follows is not None:
        anew = (
            f"`tidemark backfill {transform.follows}` and then `tidemark run {name}` compute "
            "them anew from the log"
        )
    return (
        f"{anew}; whatever comes of it, report what `tidemark quarantine show {name}` says, with "
        "the folder `logs` of the home."
    )
