"""What the gates of the asset `gated` left in its tables, written without the engine."""

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from support import MINUTE, T0
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.quality import results
from tidemark.store import ledger

NOW = datetime(2026, 11, 22, 14, tzinfo=UTC)
_FAILED = pa.list_(pa.struct([(n, pa.string()) for n in ("expectation", "level", "observed")]))
_INSTANT = pa.timestamp("us", "UTC")
_QUARANTINE = pa.schema(
    {"window_start": _INSTANT, "sensor": pa.string(), "failed": _FAILED, "status": pa.string()}
)
_PUBLISHED = pa.schema(
    {
        "window_start": _INSTANT,
        "sensor": pa.string(),
        "seq": pa.int64(),
        "quality": pa.string(),
    }
)
_STATE = pa.schema(
    {
        **dict.fromkeys(("window_start", "window_end"), _INSTANT),
        "sensor": pa.string(),
        "admitted": pa.bool_(),
    }
)
Window = tuple[int, str | None]
"""A minute after `T0`, and a sensor."""


def write(
    settings: Settings,
    table: str,
    rows: Sequence[dict[str, Any]],
    schema: pa.Schema,
    mode: str = "append",
) -> None:
    path = f"{settings.warehouse}/{settings.database}/{table}"
    found = pa.Table.from_pylist(list(rows), schema=schema)
    write_deltalake(path, found, mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]


def begun(settings: Settings, life: str) -> str:
    """The identity of the asset's state in a life, which begins where it is another one."""
    path = f"{settings.warehouse}/{settings.database}/gated_state"
    if not DeltaTable.is_deltatable(path) or DeltaTable(path).metadata().description != life:
        shutil.rmtree(path, ignore_errors=True)
        DeltaTable.create(path, _STATE, description=life)
    return str(DeltaTable(path).metadata().id)


def judged(
    settings: Settings,
    seq: int,
    *failing: Window,
    minutes: tuple[int, int] = (0, 10),
    expectation: str = "matches_log()",
    life: str = "one",
    observed: str = "0 events, 3 in the log",
) -> None:
    """A run whose result names these windows, and which judged those of some minutes."""
    begin, end = (as_datetime(T0 + m * MINUTE) for m in minutes)
    told = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "keys": json.dumps({"sensor": sensor}),
            "observed": observed,
        }
        for minute, sensor in failing
    ]
    own = begun(settings, life)
    result = {
        **dict.fromkeys(("expected", "observed", "run", "mode"), ""),
        "asset": "gated",
        "life": own,
        "expectation": expectation,
        "level": "error",
        "success": not failing,
        "window_from": begin,
        "window_to": end,
        "rows_judged": 9,
        "rows_failed": len(failing),
        "failures": told,
        "through_arrival": seq,
        "seq": seq,
        "at": NOW.replace(minute=seq),
    }
    write(settings, results.TABLE, [result], results._SCHEMA)
    ran(settings, seq, own, "incremental")


def promoted(settings: Settings, seq: int) -> None:
    """A promotion of rebuilt tables, which judges nothing itself."""
    ran(settings, seq, begun(settings, "one"), "switch")


def ran(settings: Settings, seq: int, life: str, mode: str) -> None:
    """A run that took in the arrival of its number, and no event."""
    counts = {f.name: 0 for f in ledger.SCHEMA if pa.types.is_integer(f.type)}
    facts = dict.fromkeys(ledger.SCHEMA.names, None) | counts
    facts |= {"run": f"{seq}", "mode": mode, "asset": "gated", "life": life, "reported": False}
    facts |= {"seq": seq, "through_arrival": seq, "from_arrival": seq - 1}
    facts |= {"started_at": NOW, "ended_at": NOW}
    write(settings, ledger.TABLE, [facts], ledger.SCHEMA)


def withhold(
    settings: Settings,
    *windows: Window,
    status: str = "held",
    by: str = "matches_log()",
    observed: str = "",
    mode: str = "overwrite",
) -> None:
    """What is in quarantine from now on; with the mode `append`, too."""
    rows = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "sensor": sensor,
            "failed": [{"expectation": by, "level": "error", "observed": observed}],
            "status": status,
        }
        for minute, sensor in windows
    ]
    write(settings, "gated_quarantine", rows, _QUARANTINE, mode)


def publish(settings: Settings, seq: int, quality: str, *windows: Window) -> None:
    """What is published from now on."""
    rows = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "sensor": sensor,
            "seq": seq,
            "quality": quality,
        }
        for minute, sensor in windows
    ]
    write(settings, "gated", rows, _PUBLISHED, "overwrite")
