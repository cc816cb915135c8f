"""Expectations that check Tidemark itself: no input data can make them fail.

For any input data, a window counts exactly its events in the event log, and there is one row for
each window and key. If `matches_log()` or `unique_key()` fails, Tidemark lost or duplicated events
or rows, or another program wrote to Tidemark's tables.
"""

from tidemark.define.definition import Definition
from tidemark.define.expectations.windowed import matches_log, unique_key

INTEGRITY_CHECKS = frozenset({matches_log().name, unique_key().name})
"""The names of the integrity checks, which are expectations."""

FAULT_TEXT = "a fault of Tidemark, not of the data"


def describe_remedy(definition: Definition) -> str:
    """Return the next step for a user if windows of an asset fail an integrity check."""
    name = definition.name
    recompute = f"`tidemark backfill {name}` recomputes them from the event log"
    if definition.rolled_up_name is not None:
        recompute = (
            f"`tidemark backfill {definition.rolled_up_name}` and then `tidemark run {name}` "
            "recompute "
            "them from the event log"
        )
    return (
        f"{recompute}. In any case, report the output of `tidemark quarantine show {name}`, and "
        "attach the folder `logs` of the home."
    )
