"""Report corrections, which recompute windows so that they include the too-late events they lack.

The state shows which windows lack events, because it also stores the partials of too-late events,
as not admitted. A correction replaces these windows. For each window, it counts the events of the
arrivals through which the window is already up to date, including too-late events. A correction
therefore processes no new arrival, and all its changes are due to late events. The next correction
finds only the too-late events that runs have processed since then.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.compare import iso_text, keys_as_json
from tidemark.compute.differences import find_differences, pair_rows
from tidemark.compute.materialize import temp_tables
from tidemark.define.definition import Definition
from tidemark.engine.queries.planning import Planning
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

_OLD = ["delete", "update_preimage"]
_NEW = ["insert", "update_postimage"]
"""Change types of rows in Delta's change data feed, before and after a change.

The rows of replaced windows are deletes and inserts, those of merged windows are updates.
"""


@dataclass(frozen=True)
class _Change:
    """One value that a correction changed.

    Args:
        window_start, window_end: ISO 8601, UTC.
        column: an aggregate, `events` or `late_events`.
        before, after: the two values as text; None means null, or that the row did not exist.
    """

    window_start: str
    window_end: str
    keys: dict[str, Any]
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Correction:
    """The changes that one correction made to an asset's published table.

    Args:
        facts: the facts of the correction's run.
        windows: number of published rows that changed, appeared or disappeared.
        total: number of values that changed.
        changes: the first of these values, by window and key.
    """

    facts: RunFacts
    windows: int
    total: int
    changes: list[_Change]


def list_changes(
    warehouse: Warehouse,
    definition: Definition,
    facts: RunFacts,
    version_before: int,
    max_listed: int,
) -> Correction:
    """Return the changes that a correction made, from the published table's change data feed.

    Args:
        facts: the facts of the correction's run.
        version_before: version of the published table before the correction.
        max_listed: maximum number of changes to list.
    """
    feed = warehouse.read_change_feed(definition.published_table, version_before)
    is_of_commit = F.col("commit_number") == facts.commit_number
    new_rows = feed.where(is_of_commit & F.col("_change_type").isin(_NEW))
    commit = new_rows.select("_commit_version").distinct()
    rows = feed.join(F.broadcast(commit), "_commit_version", "left_semi")
    columns = [*definition.aggregates, "events", "late_events"]
    types = {f.name: f.dataType for f in feed.schema.fields if f.name in columns}
    selected_columns = definition.by_window
    selected_columns += columns

    def select_rows(kinds: list[str]) -> DataFrame:
        return rows.where(F.col("_change_type").isin(kinds)).select(selected_columns)

    paired = pair_rows(select_rows(_OLD), select_rows(_NEW), definition.by_window)
    # A correction only adds events. If the number of events is the same, a value differs only
    # because the events were added up in another order.
    has_other_events = ~F.col("left.events").eqNullSafe(F.col("right.events"))
    differences = F.explode(find_differences(types, "left", "right")).alias("d")
    values = paired.where(has_other_events).select("key", differences)
    changed = values.select(
        iso_text("key.window_start").alias("start"),
        iso_text("key.window_end").alias("end"),
        keys_as_json(definition.keys, "key").alias("keys"),
        "d.*",
    )
    few = Asset(warehouse, definition).has_few_rows()
    with temp_tables(warehouse) as scratch, warehouse.use_planning(Planning.for_size(few)):
        changed = scratch.materialize_frame(changed, few=few)
        windows = changed.select("start", "end", "keys").distinct().count()
        in_order = changed.orderBy("start", "end", "keys", "column")
        changes: list[_Change] = []
        for row in in_order.limit(max_listed).collect():
            start, end, keys, column, before, after = row
            changes.append(_Change(start, end, json.loads(keys), column, before, after))
        return Correction(facts, windows, changed.count(), changes)
