"""Expectations that check Tidemark itself: no data can explain their failure.

For any input data, a window holds exactly the events of the log, and has one row. If `complete()`
or `unique()` fails, Tidemark lost or duplicated something, or another program wrote to its tables.
"""

from tidemark.define.definition import Definition
from tidemark.define.expectations.windowed import complete, unique

OWN = frozenset({complete().name, unique().name})
"""The names of these expectations."""

VERDICT = "a fault of Tidemark, not of the data"


def remedy(transform: Definition) -> str:
    """Return an instruction for windows of an asset that fail one of these expectations."""
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
