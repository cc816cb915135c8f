"""Expectations that check Tidemark itself: no data can explain their failure.

For any input data, a window holds exactly the events of the log, and has one row. If
`matches_log()` or `unique_key()` fails, Tidemark lost or duplicated something, or another program
wrote to its tables.
"""

from tidemark.define.definition import Definition
from tidemark.define.expectations.windowed import matches_log, unique_key

INTEGRITY_CHECKS = frozenset({matches_log().name, unique_key().name})
"""The names of the two expectations."""

FAULT_TEXT = "a fault of Tidemark, not of the data"


def remedy(transform: Definition) -> str:
    """Return an instruction for windows of an asset that fail an integrity check."""
    name = transform.name
    recompute = f"`tidemark backfill {name}` recomputes them from the event log"
    if transform.follows is not None:
        recompute = (
            f"`tidemark backfill {transform.follows}` and then `tidemark run {name}` recompute "
            "them from the event log"
        )
    return (
        f"{recompute}. In any case, report the output of `tidemark quarantine show {name}`, and "
        "attach the folder `logs` of the home."
    )
