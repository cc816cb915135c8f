"""Joins by keys of any type: NaN, -0.0, nulls within a key, equal times, texts that look alike."""

import math
import random
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame

from helpers.suite.nightly import mostly_nightly
from tidemark.base import thresholds
from tidemark.define import aggregates as agg
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session
from tidemark.run.erase.erase import erase_events
from tidemark.run.runner import incremental
from tidemark.store.rows import to_micros
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
LEFT, RIGHT = (
    Source(
        name=name,
        columns={
            "t": "TIMESTAMP",
            "x": "DOUBLE",
            "k": "STRUCT<s: STRING, a: ARRAY<FLOAT>, d: DECIMAL(10,2), b: BINARY>",
            "id": "INT",
        },
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
NUMBERS = [1.0, math.nan, 0.0, -0.0, None, math.inf]
TEXTS = ["é", "e\u0301", "", None, "A", "a", "a "]
ARRAYS = [[], None, [None], [math.nan], [0.0], [-0.0], [0.0, None]]
Key = tuple[Any, ...]


def random_key(chance: random.Random) -> Key:
    nested = None
    if chance.random() < 0.9:
        nested = (
            chance.choice([*TEXTS, "A", "A", "A"]),
            chance.choice(ARRAYS),
            chance.choice([Decimal("1.50"), None]),
            chance.choice([b"\xff", b"", None]),
        )
    return chance.choice(NUMBERS), nested


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value that Python compares as a key is compared."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def rows_of(warehouse: Warehouse, source: DerivedSource) -> list[tuple[Any, ...]]:
    rows = warehouse.load_rows(source.log_table).to_pylist()
    return sorted((r["id"], r["payment"] is None, r["payment"]) for r in rows)


def same(rows: DataFrame) -> DataFrame:
    return rows


# Two joins, an asset over one of them, and an erasure.
@pytest.mark.slow
@pytest.mark.parametrize("few", mostly_nightly([True, False]))
def test_keys_are_equal_by_value(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, *, few: bool
) -> None:
    chance = random.Random(5)
    keys = [random_key(chance) for _ in range(12)]
    keys += [(0.0, ("A", [0.0], None, b"")), (-0.0, ("A", [-0.0], None, b""))] * 2
    keys += [(math.nan, (None, [math.nan], None, None))] * 2
    sides = [
        [
            [(chance.randrange(4) * SECOND, *chance.choice(keys), n * 100 + m) for m in range(12)]
            for n in range(3)
        ]
        for _ in range(2)
    ]
    given: dict[str, Any] = {
        "left": LEFT,
        "right": RIGHT,
        "on": ["x", "k"],
        "rename": {"payments.t": "paid_at", "payments.id": "payment"},
    }
    pairs = join(
        name="pairs",
        within=Between("0 seconds", "1 second"),
        how="left",
        allowed_lateness="1 day",
        **given,
    )
    priced = asof_join(name="priced", how="left", allowed_lateness="1 day", **given)
    left, right = (
        [(*row, n, m) for n, rows in enumerate(side) for m, row in enumerate(rows)]
        for side in sides
    )
    expected, versions = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for t, x, k, one, _, _ in left:
        own = None if x is None or k is None else plain((x, k))
        equal = [r for r in right if own is not None and plain((r[1], r[2])) == own]
        near = [r[3] for r in equal if t <= r[0] <= t + SECOND] or [None]
        expected += [(one, other is None, other) for other in near]
        older = [r for r in equal if r[0] <= t]
        newest = max(older, key=lambda r: (r[0], r[4], r[5]))[3] if older else None
        versions.append((one, newest is None, newest))
    if not few:
        for name, size in (("SMALL_BATCH_ROWS", 0), ("SMALL_BATCH_BYTES", -1)):
            monkeypatch.setattr(thresholds, name, size)
    for base, side in zip((LEFT, RIGHT), sides, strict=True):
        arrivals = [ScenarioArrival(tuple(rows), n) for n, rows in enumerate(side)]
        arrivals.append(ScenarioArrival((), 9, ends=True))
        list(ingest(warehouse, MemoryConnector(base, arrivals), batch=None))
    for source in (pairs, priced):
        connector = DerivedConnector(source, warehouse.location, warehouse.database)
        list(ingest(warehouse, connector, batch=2))
        assert check_derived_parity(warehouse, source).is_equal
    by_size = sorted(expected, key=str)
    assert sorted(rows_of(warehouse, pairs), key=str) == by_size
    assert sorted(rows_of(warehouse, priced), key=str) == sorted(versions, key=str)

    by_key = WindowedTransform(
        name="by_key",
        source=pairs,
        keys=("x", "k"),
        window=Session("1 second"),
        allowed_lateness=0,
        aggregates={"n": agg.count(), "ids": agg.collect("id"), "top": agg.top_k("x", 2)},
        description="",
        function=same,
    )
    incremental(warehouse, by_key, limit=2)
    incremental(warehouse, by_key)
    assert check_parity(warehouse, by_key).is_equal
    windows = warehouse.load_rows(by_key.published_table)
    found = [
        (start, plain((w["x"], tuple(w["k"].values()) if w["k"] else None)))
        for start, w in zip(to_micros(windows["window_start"]), windows.to_pylist(), strict=True)
    ]
    assert len(set(found)) == len(found)
    assert sum(windows["n"].to_pylist()) == len(expected)

    erase_events(warehouse, RIGHT, [by_key], "isnan(x) OR x = 0", derived=[pairs, priced])
    gone = {r[3] for r in right if r[1] is not None and (math.isnan(r[1]) or r[1] == 0)}
    assert gone
    for source in (pairs, priced):
        assert check_derived_parity(warehouse, source).is_equal
        assert not gone & {r[2] for r in rows_of(warehouse, source)}
    assert check_parity(warehouse, by_key).is_equal
