"""Small event logs and transforms, and a plain-Python reference result."""

import random
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY, as_datetime, parse_instant
from tidemark.define import aggregates as agg
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.commits.conditions import Equals, number_is
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

MINUTE = 60_000_000
T0 = 1_700_000_040_000_000
"""A full minute."""


@dataclass(frozen=True)
class Event:
    """An event of the `readings` source; times are microseconds."""

    ts: int | None
    key: str | None
    value: float | None


READINGS = Source(
    name="readings",
    columns={"ts": "timestamp", "sensor": "string", "value": "double", "price": "decimal(10,2)"},
    event_time="ts",
    watermark=BoundedOutOfOrderness("1 minute"),
)


def same(rows: DataFrame) -> DataFrame:
    return rows


def filtered_by_nothing(rows: DataFrame) -> DataFrame:
    """Return the rows: another function with the same result."""
    return rows.where("true")


PER_MINUTE = WindowedTransform(
    name="per_minute",
    description="Readings by sensor and minute.",
    source=READINGS,
    keys=("sensor",),
    window=Tumbling("1 minute"),
    allowed_lateness=2 * MINUTE,
    aggregates={
        "n": agg.count(),
        "high": agg.count(where="value > 0.5"),
        "total": agg.sum("price"),
        "average": agg.mean("value"),
        "least": agg.min("value"),
        "most": agg.max("value"),
    },
    function=same,
)


def some_arrivals(seed: int = 7, count: int = 5, size: int = 40) -> list[list[Event]]:
    """Return arrivals a minute apart, with on-time, late and too-late events."""
    chance = random.Random(seed)

    def event(now: int) -> Event:
        age = chance.choice([0, 30, 60, 120, 240, 420]) * 1_000_000
        ts = None if chance.random() < 0.02 else now - int(chance.random() * age)
        return Event(ts, chance.choice(["a", "b", None]), round(chance.random(), 3))

    return [[event(T0 + i * MINUTE) for _ in range(size)] for i in range(count)]


def ingest(
    warehouse: Warehouse,
    source: Source,
    arrivals: Sequence[Sequence[Event]],
    *,
    ends: bool = True,
    versions: str = "{}",
) -> list[Arrival]:
    """Add arrivals and the end of the source to a log. Return the arrivals.

    Columns of the source that `READINGS` does not have are null.

    Args:
        versions: the versions of the source's lookup tables that they record, as JSON.
    """
    log = Log(warehouse, source)
    log.ensure_tables()
    log.take_over()
    last, added = log.find_last_arrival(), []
    rows: list[tuple[Any, ...]] = []
    for events in [*arrivals, *([[]] if ends else [])]:
        number = 0 if last is None else last.arrival + 1
        times = [e.ts for e in events if e.ts is not None]
        before, state = (None, None) if last is None else (last.after, last.watermark_state)
        seen = str(max(times)) if times else None
        after, state = source.watermark.advance(state, before, seen, 0)
        last = Arrival(
            arrival=number,
            arrived_at=T0 + number * MINUTE,
            before=before,
            after=after if events else INFINITY,
            rows=len(events),
            min_event_time=min(times, default=None),
            max_event_time=max(times, default=None),
            bytes=0,
            position="{}",
            watermark_state=state,
            lookups=versions,
            follows="" if last is None else last.arrival_id,
        )
        added.append(last)
        rows += [(e.ts, e.key, e.value, number, p) for p, e in enumerate(events)]
    schema = "ts BIGINT, sensor STRING, value DOUBLE, arrival BIGINT, position BIGINT"
    frame = warehouse.spark.createDataFrame(rows, schema).withColumns(
        {
            "ts": F.timestamp_micros("ts"),
            "price": F.col("value").cast("decimal(10,2)"),
            "read_from": F.lit("memory"),
            **{
                n: F.lit(None).cast(t)
                for n, t in source.columns.items()
                if n not in READINGS.columns
            },
        }
    )
    log.append_arrivals(frame, added)
    return added


def reference(
    arrivals: Sequence[Sequence[Event]],
    lateness: int = 2 * MINUTE,
    *,
    complete: bool = False,
    left_out: Container[tuple[int, int]] = (),
) -> dict[tuple[int, str | None], dict[str, Any]]:
    """Return the expected rows of `PER_MINUTE` for a closed source, by window start and key.

    Args:
        left_out: events that do not count, by arrival and position.
    """
    watermark: int | None = None
    newest: int | None = None
    counted: dict[tuple[int, str | None], list[tuple[int, bool, Event]]] = defaultdict(list)
    for number, events in enumerate(arrivals):
        for position, e in enumerate(events):
            if e.ts is None or (number, position) in left_out:
                continue
            start = e.ts - e.ts % MINUTE
            end = start + MINUTE
            late = watermark is not None and end <= watermark
            too_late = watermark is not None and end + lateness <= watermark
            if complete or not too_late:
                counted[start, e.key].append((number, late, e))
        newest = max([t for e in events if (t := e.ts) is not None] + [newest or 0])
        watermark = newest - MINUTE
    return {window: _row(found) for window, found in counted.items()}


def _row(found: list[tuple[int, bool, Event]]) -> dict[str, Any]:
    values = [e.value for _, _, e in found if e.value is not None]
    late_arrivals = {number for number, late, _ in found if late}
    on_time = any(not late for _, late, _ in found)
    return {
        "n": len(found),
        "high": sum(v > 0.5 for v in values),
        "total": sum(Decimal(str(v)).quantize(Decimal("0.01"), "ROUND_HALF_UP") for v in values),
        "average": round(sum(values) / len(values), 9),
        "least": min(values),
        "most": max(values),
        "events": len(found),
        "late_events": sum(late for _, late, _ in found),
        "revision": on_time + len(late_arrivals) - 1,
        "timing": "LATE" if late_arrivals else "ON_TIME",
        "final": True,
        "last_arrival": max(number for number, _, _ in found),
    }


def published(
    warehouse: Warehouse, transform: WindowedTransform
) -> dict[tuple[int, str | None], dict[str, Any]]:
    """Return the published rows in the format of `reference`. Fail on duplicate windows.

    They are read without the engine, which is not needed for a few rows. `parity` uses the engine.
    """
    rows = warehouse.load_rows(transform.published_table).to_pylist()
    found = {(parse_instant(r["window_start"]), r["sensor"]): r for r in rows}
    assert len(found) == len(rows), "a window was published twice"
    for row in found.values():
        for name in ("window_start", "window_end", "sensor", "as_of", "commit_number", "quality"):
            del row[name]
        if row["average"] is not None:
            row["average"] = round(row["average"], 9)
    return found


def check_results(warehouse: Warehouse, asset: str, commit_number: int = 0) -> list[CheckResult]:
    """Return the recorded results of one commit."""
    bounds = (Equals("asset", asset), number_is("commit_number", commit_number))
    return [CheckResult(**row) for row in warehouse.load_rows(TABLE, *bounds).to_pylist()]


def renamed(transform: WindowedTransform, name: str) -> WindowedTransform:
    return replace(transform, name=name)


def minutes(first: int, last: int) -> tuple[int, int]:
    """Return the range of window starts from minute `first` of the log up to `last`."""
    return T0 + first * MINUTE, T0 + last * MINUTE


def at(micros: int) -> str:
    return as_datetime(micros).isoformat()
