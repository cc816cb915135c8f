"""Corrections: the windows that lack too-late events, computed anew with them.

Which windows lack events is in the state: what came too late is stored there too, as not admitted.
A correction replaces these windows, through the arrival that each was complete through, by the
complete answer, in which such events are admitted. So it takes in no new arrival, what it changes
is due to late events alone, and the next correction finds only what came too late since.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.compare import differing, iso, named
from tidemark.compute.held import scratch
from tidemark.define.definition import Definition
from tidemark.engine.planning import Planning
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse

_OLD, _NEW = ("delete", "update_preimage"), ("insert", "update_postimage")
"""What a change feed calls the two sides of a change: windows that were replaced, or merged."""


@dataclass(frozen=True)
class Change:
    """One value that a correction changed.

    Args:
        window_start, window_end: ISO 8601, UTC.
        keys: the window's keys.
        column: an aggregate, `events` or `late_events`.
        before, after: the two values, as text; None is null, or that there was no such row.
    """

    window_start: str
    window_end: str
    keys: dict[str, Any]
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Correction:
    """What a correction did.

    Args:
        facts: the run's.
        windows: published rows that changed, came or went.
        total: how many values changed; `changes` lists the first of them.
    """

    facts: RunFacts
    windows: int
    total: int
    changes: list[Change]


def told(
    warehouse: Warehouse, transform: Definition, facts: RunFacts, since: int, most: int
) -> Correction:
    """What a correction changed, as the published table's change feed has it.

    Args:
        since: the version of the published table before the correction.
        most: how many changes to list.
    """
    feed = warehouse.changes(transform.table, since)
    new = (F.col("seq") == facts.seq) & F.col("_change_type").isin(*_NEW)
    commit = feed.where(new).select("_commit_version").distinct()
    rows = feed.join(F.broadcast(commit), "_commit_version", "left_semi")
    columns = [*transform.aggregates, "events", "late_events"]
    types = {f.name: f.dataType for f in feed.schema.fields if f.name in columns}

    def side(kinds: tuple[str, ...], name: str) -> DataFrame:
        return rows.where(F.col("_change_type").isin(*kinds)).select(
            F.struct(*transform.by_window).alias(f"{name}_key"), F.struct(*columns).alias(name)
        )

    found = (
        side(_OLD, "old")
        .join(side(_NEW, "new"), F.col("old_key").eqNullSafe(F.col("new_key")), "full")
        # A correction only adds events: what has the same ones was added up in another order.
        .where(~F.col("old.events").eqNullSafe(F.col("new.events")))
        .select(
            F.coalesce("old_key", "new_key").alias("key"),
            F.explode(differing(types, "old", "new")).alias("d"),
        )
        .select(
            iso("key.window_start").alias("start"),
            iso("key.window_end").alias("end"),
            named(transform.keys, "key").alias("keys"),
            "d.*",
        )
    )
    few = Asset(warehouse, transform).few()
    with scratch(warehouse) as place, warehouse.planning(Planning.of(few)):
        found = place.keep(found, few=few)
        windows = found.select("start", "end", "keys").distinct().count()
        listed = found.orderBy("start", "end", "keys", "column").limit(most).collect()
        changes = [Change(r[0], r[1], json.loads(r[2]), *r[3:]) for r in listed]
        return Correction(facts, windows, found.count(), changes)
