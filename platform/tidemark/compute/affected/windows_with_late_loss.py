"""Find the windows that lack too-late events, which a correction recomputes."""

from pyspark.sql import functions as F

from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


def find_windows_with_late_loss(warehouse: Warehouse, transform: Definition) -> Ranges | None:
    """Return the starts of the windows that lack too-late events, or None if no window does.

    For sessions these are the starts of the events' own sessions, before merging.
    """
    if not warehouse.exists(transform.state_table):
        return None
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    rows = State(warehouse, transform).read().where(classification.is_uncounted())
    # If windows overlap, only a range of one instant excludes the starts of other windows.
    spans = (
        rows.select(start, end if transform.window.disjoint else start + F.lit(1))
        .distinct()
        .collect()
    )
    return merge_ranges((s, e) for s, e in spans) or None
