"""Columns of a source may have names that SQL takes only in backticks: `user.id`, `x y`, `select`.

Everything that reads a source takes them.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tidemark.define import aggregates as agg
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import PerPartition
from tidemark.define.windows import Tumbling
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.event_fates import find_fates
from tidemark.verify.parity import check_parity
from tidemark.verify.tap import list_steps, tap_step
from tidemark.verify.traced_events import find_derived, find_events
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
ODD = {"t": "event.time", "user": "user.id", "amount": "x y", "op": "select"}


def sources(prefix: str, names: Mapping[str, str]) -> tuple[Source, Source]:
    left, right = (
        Source(
            name=f"{prefix}_{name}",
            columns={
                names["t"]: "TIMESTAMP",
                names["user"]: "STRING",
                names["amount"]: "INT",
                names["op"]: "STRING",
            },
            event_time=names["t"],
            watermark=PerPartition(names["user"], "2 seconds", idle="1 day"),
        )
        for name in ("orders", "payments")
    )
    return left, right


def derive(
    prefix: str, names: Mapping[str, str], left: Source, right: Source
) -> list[DerivedSource]:
    given: dict[str, Any] = {
        "left": left,
        "right": right,
        "on": [names["user"]],
        "rename": {f"{right.name}.{names[c]}": f"right.{c}" for c in ("t", "amount", "op")},
    }

    def kept(rows: DataFrame) -> DataFrame:
        return rows.where(f"`{names['amount']}` > 0")

    kept.__name__ = f"{prefix}_kept"
    return [
        join(
            name=f"{prefix}_pairs",
            within=Between("-1 second", "2 seconds"),
            how="full",
            where=f"l.`{names['amount']}` >= 0",
            **given,
        ),
        asof_join(name=f"{prefix}_priced", how="left", deleted=f"`{names['op']}` = 'D'", **given),
        union(name=f"{prefix}_all", of=[left, right]),
        row_asset(source=left)(kept),
    ]


def asset_of(prefix: str, names: Mapping[str, str], source: Source) -> WindowedTransform:
    def prepare(rows: DataFrame) -> DataFrame:
        return rows.withColumnsRenamed({names[c]: f"own_{c}" for c in ("user", "amount", "op")})

    return WindowedTransform(
        name=f"{prefix}_by_user",
        source=source,
        keys=("own_user",),
        window=Tumbling("4 seconds"),
        allowed_lateness=2 * SECOND,
        aggregates={"n": agg.count(), "total": agg.sum("own_amount"), "last": agg.last("own_op")},
        description="",
        function=prepare,
        deduplicate=Deduplicate((names["user"], names["amount"]), within="1 day"),
    )


ARRIVALS = [
    [(1, "a", 1, "I"), (2, "b", 2, "I"), (1, "a", 1, "I")],
    [(5, "a", 3, "I"), (6, "b", 4, "D"), (2, "b", 2, "I"), (None, "a", 9, "I")],
    [(20, "a", 5, "I"), (21, "b", 6, "I"), (1, "a", 7, "I"), (9, None, 8, "I")],
]


# Two sources, four derived sources, and an asset over three arrivals.
@pytest.mark.slow
def test_sources_with_names_in_backticks(warehouse: Warehouse) -> None:
    bases = sources("odd", ODD)
    derived, asset = derive("odd", ODD, *bases), asset_of("odd", ODD, bases[0])
    for known in (1, 2, 3):
        for base in bases:
            arrivals = [
                ScenarioArrival(
                    tuple((None if t is None else t * SECOND, *rest) for t, *rest in rows), n
                )
                for n, rows in enumerate(ARRIVALS[:known])
            ]
            list(ingest(warehouse, MemoryConnector(base, arrivals), batch=None))
        for source in derived:
            connector = DerivedConnector(source, warehouse.location, warehouse.database)
            list(ingest(warehouse, connector, batch=None))
        incremental(warehouse, asset)
    for source in derived:
        assert check_derived_parity(warehouse, source).is_equal
    assert check_parity(warehouse, asset).is_equal
    newest = Asset(warehouse, asset).state.read_last_commit()
    assert newest is not None
    for step in list_steps(asset):
        tap_step(warehouse, asset, step, newest.commit_number, 50)
    (event,) = find_events(warehouse, bases[0], f"{bases[0].name}:0:1")
    assert find_fates(warehouse, [asset], event)
    assert [*find_derived(warehouse, derived[0], event)]
    backfill(warehouse, asset)
    correct(warehouse, asset)
