"""Tables of the asset `gated` after its quality gates, written without the engine."""

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from helpers.data.support import MINUTE, T0
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.define.helper_columns import ADMITTED
from tidemark.quality import results
from tidemark.store import ledger

NOW = datetime(2026, 11, 22, 14, tzinfo=UTC)
_FAILED = pa.list_(pa.struct([(n, pa.string()) for n in ("expectation", "level", "observed")]))
_INSTANT = pa.timestamp("us", "UTC")
_QUARANTINE = pa.schema(
    {
        "window_start": _INSTANT,
        "window_end": _INSTANT,
        "sensor": pa.string(),
        "failed_expectations": _FAILED,
        "quarantine_status": pa.string(),
    }
)
_PUBLISHED = pa.schema(
    {
        "window_start": _INSTANT,
        "sensor": pa.string(),
        "commit_number": pa.int64(),
        "quality": pa.string(),
    }
)
_STATE = pa.schema(
    {
        **dict.fromkeys(("window_start", "window_end"), _INSTANT),
        "sensor": pa.string(),
        ADMITTED: pa.bool_(),
    }
)
Window = tuple[int, str | None]
"""A minute after `T0` and a sensor."""


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


def begun(settings: Settings, table_id: str) -> str:
    """Create the asset's state table unless it has this description. Return its table ID."""
    path = f"{settings.warehouse}/{settings.database}/gated_state"
    if not DeltaTable.is_deltatable(path) or DeltaTable(path).metadata().description != table_id:
        shutil.rmtree(path, ignore_errors=True)
        DeltaTable.create(path, _STATE, description=table_id)
    return str(DeltaTable(path).metadata().id)


def judged(
    settings: Settings,
    commit_number: int,
    *failing: Window,
    minutes: tuple[int, int] = (0, 10),
    expectation: str = "matches_log()",
    table_id: str = "one",
    observed: str = "0 events, 3 in the log",
) -> None:
    """Write a run that validated the windows of some minutes and failed the given ones."""
    begin, end = (as_datetime(T0 + m * MINUTE) for m in minutes)
    told = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "keys": json.dumps({"sensor": sensor}),
            "observed": observed,
        }
        for minute, sensor in failing
    ]
    own = begun(settings, table_id)
    result = {
        **dict.fromkeys(("expected", "observed", "run", "mode"), ""),
        "asset": "gated",
        "table_id": own,
        "expectation": expectation,
        "level": "error",
        "success": not failing,
        "window_from": begin,
        "window_to": end,
        "rows_validated": 9,
        "rows_failed": len(failing),
        "failures": told,
        "through_arrival": commit_number,
        "commit_number": commit_number,
        "at": NOW.replace(minute=commit_number),
    }
    write(settings, results.TABLE, [result], results._SCHEMA)
    ran(settings, commit_number, own, "incremental")


def promoted(settings: Settings, commit_number: int) -> None:
    """Write a promotion of rebuilt tables, which validates nothing itself."""
    ran(settings, commit_number, begun(settings, "one"), "promotion")


def ran(settings: Settings, commit_number: int, table_id: str, mode: str) -> None:
    """Write a run that processed one arrival, the one with its number, without events."""
    counts = {f.name: 0 for f in ledger.SCHEMA if pa.types.is_integer(f.type)}
    facts = dict.fromkeys(ledger.SCHEMA.names, None) | counts
    facts |= {
        "run": f"{commit_number}",
        "mode": mode,
        "asset": "gated",
        "table_id": table_id,
        "reported": False,
    }
    facts |= {
        "commit_number": commit_number,
        "through_arrival": commit_number,
        "from_arrival": commit_number - 1,
    }
    facts |= {"started_at": NOW, "ended_at": NOW}
    write(settings, ledger.TABLE, [facts], ledger.SCHEMA)


def withhold(
    settings: Settings,
    *windows: Window,
    status: str = "quarantined",
    by: str = "matches_log()",
    observed: str = "",
    mode: str = "overwrite",
) -> None:
    """Set the content of the quarantine; with the mode `append`, add to it."""
    rows = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "window_end": as_datetime(T0 + (minute + 1) * MINUTE),
            "sensor": sensor,
            "failed_expectations": [{"expectation": by, "level": "error", "observed": observed}],
            "quarantine_status": status,
        }
        for minute, sensor in windows
    ]
    write(settings, "gated_quarantine", rows, _QUARANTINE, mode)


def publish(settings: Settings, commit_number: int, quality: str, *windows: Window) -> None:
    """Set the published windows."""
    rows = [
        {
            "window_start": as_datetime(T0 + minute * MINUTE),
            "sensor": sensor,
            "commit_number": commit_number,
            "quality": quality,
        }
        for minute, sensor in windows
    ]
    write(settings, "gated", rows, _PUBLISHED, "overwrite")
