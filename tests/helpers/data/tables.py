"""Small Delta tables in the engine's format, written without an engine."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake

from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import ADMITTED, MARKER
from tidemark.define.identity.derivation import derivation_fingerprint
from tidemark.store import ledger
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import to_json
from tidemark.store.event_log.arrival import TIMELINE
from tidemark.store.event_log.steps import Step, TakenArrival

_INSTANT = pa.timestamp("us", "UTC")
_WINDOWS = pa.schema(
    {
        **dict.fromkeys(("window_start", "window_end"), _INSTANT),
        "origin": pa.string(),
        **dict.fromkeys(("events", "late_events"), pa.int64()),
        "final": pa.bool_(),
        "commit_number": pa.int64(),
    }
)

_STATE = pa.schema([*_WINDOWS, pa.field(ADMITTED, pa.bool_())])


def arrive(
    settings: Settings,
    source: str,
    first: int,
    last: int,
    newest: int = 0,
    positions: Sequence[str] = (),
    dead_letters: int = 0,
) -> None:
    """Add arrivals to a source's timeline, each with one event at `newest` and dead letters."""
    rows = [
        {
            "arrival": n,
            "arrived_at": as_datetime(n),
            "watermark_after": as_datetime(newest),
            "rows": 1,
            "min_event_time": as_datetime(newest),
            "max_event_time": as_datetime(newest),
            "bytes": 1,
            "position": positions[n - first] if positions else "{}",
            "lookups": "{}",
            "dead_letters": dead_letters,
            "schema_version": 1,
            "arrival_id": f"{source} {n}",
            "follows": f"{source} {n - 1}" if n else "",
            **dict.fromkeys(("future_timestamps", "unreadable_marks"), 0),
        }
        for n in range(first, last + 1)
    ]
    _append(settings, f"{source}_timeline", rows, TIMELINE)


def position_of(settings: Settings, source: DerivedSource, base: str, **taken: int) -> str:
    """Return the position of a step that took the newest arrival in `taken` of a base.

    Args:
        taken: for each base, the number of the newest arrival, as `arrive` adds it.
    """
    folder = f"{settings.warehouse}/{settings.database}"
    bases = {
        name: TakenArrival(
            number, f"{name} {number}", str(DeltaTable(f"{folder}/{name}_timeline").metadata().id)
        )
        for name, number in taken.items()
    }
    return Step(base, bases, derivation_fingerprint(source)).to_position()


def beat(
    settings: Settings, source: str, number: int, watermark: int, silent_since: int = 0
) -> None:
    """Add a heartbeat to a source's timeline, at `number` microseconds after 1970."""
    row = {
        "arrival": number,
        "arrived_at": as_datetime(number),
        "watermark_after": as_datetime(watermark),
        "position": "{}",
        "lookups": "{}",
        "schema_version": 1,
        "silent_since": as_datetime(silent_since),
        "arrival_id": f"{source} {number}",
        "follows": f"{source} {number - 1}" if number else "",
        **dict.fromkeys(("rows", "bytes", "dead_letters", "future_timestamps"), 0),
        "unreadable_marks": 0,
    }
    _append(settings, f"{source}_timeline", [row], TIMELINE)


def count(settings: Settings, asset: str, start: int, end: int) -> None:
    """Add a counted window to an asset's state."""
    _life(settings, asset)
    window = {"window_start": as_datetime(start), "window_end": as_datetime(end)}
    row = {**window, "origin": "JFK", "events": 1, "late_events": 0, ADMITTED: True}
    _append(settings, f"{asset}_state", [row], _STATE)


def commit(settings: Settings, asset: Definition, *commits: StateCommit) -> None:
    """Add commits to an asset's state, without partials."""
    rows = [{"commit_number": c.commit_number, MARKER: to_json(c)} for c in commits]
    _append(settings, asset.state_table, rows, _STATE.append(pa.field(MARKER, pa.string())))


def ran(
    settings: Settings,
    assets: str | Iterable[str],
    commit_number: int,
    through: int,
    watermark: int,
    mode: str = "incremental",
    **others: object,
) -> None:
    """Add a run of each asset to the ledger, which ended `commit_number` seconds after 1970."""
    row = {
        **dict.fromkeys(("from_arrival", "windows", "on_time", "late", "too_late"), 0),
        "no_event_time": 0,
        "run": f"{commit_number}",
        "mode": mode,
        "late_events": "exclude",
        "commit_number": commit_number,
        "through_arrival": through,
        "started_at": as_datetime(commit_number * 1_000_000),
        "ended_at": as_datetime(commit_number * 1_000_000),
        "watermark": as_datetime(watermark),
        "reported": False,
        **others,
    }
    names = [assets] if isinstance(assets, str) else assets
    rows = [row | {"asset": name, "table_id": _life(settings, name)} for name in names]
    _append(settings, "runs", rows, ledger.SCHEMA)


def publish(
    settings: Settings, asset: str, commit_number: int, starts: Sequence[int], size: int
) -> None:
    """Add windows of `size` microseconds with two events each, published by a commit."""
    rows = [
        {
            "window_start": as_datetime(start),
            "window_end": as_datetime(start + size),
            "origin": "JFK",
            "events": 2,
            "late_events": 0,
            "final": False,
            "commit_number": commit_number,
        }
        for start in starts
    ]
    _append(settings, asset, rows, _WINDOWS)


def _life(settings: Settings, asset: str) -> str:
    """Return the table ID of an asset's state. Create the table if necessary."""
    path = f"{settings.warehouse}/{settings.database}/{asset}_state"
    state = DeltaTable.create(path, Schema.from_arrow(_STATE), mode="ignore")
    return str(state.metadata().id)


def _append(
    settings: Settings, table: str, rows: Sequence[dict[str, Any]], schema: pa.Schema
) -> None:
    path = f"{settings.warehouse}/{settings.database}/{table}"
    write_deltalake(path, pa.Table.from_pylist(list(rows), schema=schema), mode="append")
