"""Which windows lack too-late events: what a correction computes anew."""

from pyspark.sql import functions as F

from tidemark.define import verdict as judge
from tidemark.define.definition import Definition
from tidemark.store.ranges import Ranges, joined
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


def lacking(warehouse: Warehouse, transform: Definition) -> Ranges | None:
    """The starts of the windows that lack too-late events, of sessions those of the events; None
    where none does."""
    if not warehouse.exists(transform.state_table):
        return None
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    rows = State(warehouse, transform).read().where(judge.missed())
    # Where windows overlap, only a range of one instant holds the starts of no others.
    spans = (
        rows.select(start, end if transform.window.disjoint else start + F.lit(1))
        .distinct()
        .collect()
    )
    return joined((s, e) for s, e in spans) or None
