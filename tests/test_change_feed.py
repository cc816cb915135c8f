"""Test that the consumer in docs/consuming_changes.md is correct after any change of windows."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.data.support import PER_MINUTE, READINGS, ingest, minutes, some_arrivals
from helpers.suite.nightly import mostly_nightly
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.windows import Session, Tumbling, Window
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.warehouse import Warehouse

# Reads the change feed through the engine after each of many runs: a minute of CPU time.
pytestmark = pytest.mark.slow

REGISTERED = True
DOCUMENT = Path(__file__).parents[1] / "docs" / "consuming_changes.md"
ARRIVALS = some_arrivals()


def total() -> Any:  # noqa: ANN401  (the class is the document's)
    (shown,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    names: dict[str, Any] = {"__name__": "change_feed"}
    exec(compile(shown, str(DOCUMENT), "exec"), names)
    return names["Total"]()


def published(warehouse: Warehouse, asset: WindowedTransform) -> dict[str | None, int]:
    rows = warehouse.read_frame(asset.published_table).groupBy("sensor").sum("n").collect()
    return {r[0]: r[1] for r in rows}


@pytest.mark.parametrize(
    "window", mostly_nightly([Session("20 seconds"), Tumbling("1 minute")]), ids=str
)
def test_the_running_total_equals_the_published_windows(
    warehouse: Warehouse, window: Window
) -> None:
    asset = replace(
        PER_MINUTE,
        window=window,
        aggregates={"n": agg.count()},
        trigger=Trigger(early=EachArrival()),
    )
    kept, seen = total(), set[str]()

    def follows() -> None:
        before = kept.through
        kept.follow(warehouse.spark, f"{warehouse.database}.{asset.published_table}", "sensor", "n")
        assert kept.of == published(warehouse, asset)
        feed = (
            warehouse.read_change_feed(asset.published_table, before)
            .select("_change_type")
            .distinct()
        )
        seen.update(r[0] for r in feed.collect())

    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, asset, limit=2)
    follows()
    incremental(warehouse, asset)
    follows()
    assert {"insert", "update_preimage", "update_postimage"} <= seen
    assert ("delete" in seen) == isinstance(window, Session)
    backfill(warehouse, asset, *minutes(0, 2))
    ingest(warehouse, READINGS, ARRIVALS[3:])
    follows()
    incremental(warehouse, asset, limit=2)
    incremental(warehouse, asset)
    assert correct(warehouse, asset) is not None
    follows()
    assert "delete" in seen
    assert sum(kept.of.values()) == sum(e.ts is not None for a in ARRIVALS for e in a)
    through = kept.through
    follows()
    assert kept.through == through
