"""Render a pane as a JSON record. docs/sinks.md has the schema.

The key identifies a pane by asset, epoch, window, keys, commit number, pane number, and whether it
is a retraction. The keys of a pane and of its retraction differ only in the last field.
"""

import base64
import json
import math
import zlib
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from tidemark.base.instants import EPOCH, format_instant
from tidemark.define.definition import Definition
from tidemark_streaming.sink.panes import Pane

_COPIED_COLUMNS = ("events", "late_events", "last_arrival", "as_of", "quality")
"""Columns of a published row that are copied to the record under the same names."""


class Record(NamedTuple):
    """A Kafka record to produce.

    Args:
        key, value: JSON in UTF-8.
        partition: the target partition.
    """

    key: bytes
    value: bytes
    partition: int


def render_record(
    definition: Definition, epoch: int, pane: Pane, run: str | None, count: int
) -> Record:
    """Return a pane as a record.

    Args:
        epoch: the start time of the uninterrupted sequence of changes, as in `Position`.
        run: the ID of the run that published the pane, if known.
        count: the number of partitions of the topic.
    """
    row = pane.row
    keys = {key: row[key] for key in definition.keys}
    key = {
        "asset": definition.name,
        "epoch": epoch,
        "window_start": row["window_start"],
        "window_end": row["window_end"],
        "keys": keys,
        "commit_number": row["commit_number"],
        "pane": pane.pane,
        "retraction": pane.retraction,
    }
    facts = {
        "timing": pane.timing,
        "last": row["final"],
        "values": pane.values,
        **{name: row[name] for name in _COPIED_COLUMNS},
        "run": run,
    }
    # The partition depends on the keys alone, so that windows with the same keys stay in order.
    partition = zlib.crc32(_canonical_json(keys)) % count
    return Record(_canonical_json(key), _canonical_json({**key, **facts}), partition)


def reset_records(definition: Definition, epoch: int, count: int) -> list[Record]:
    """Return one reset record per partition. A reset record begins a new epoch and retracts all
    earlier records of the asset."""
    text = _canonical_json({"asset": definition.name, "epoch": epoch, "reset": True})
    return [Record(text, text, partition) for partition in range(count)]


def _canonical_json(value: object) -> bytes:
    """Return a value as JSON in a canonical form."""
    return json.dumps(_to_json_value(value), separators=(",", ":"), ensure_ascii=False).encode()


def _to_json_value(value: Any) -> Any:  # noqa: ANN401 (any value of a column)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # JSON has no literals for NaN and infinity.
            if math.isfinite(value):
                return value
            return str(value)
        case Decimal():
            return str(value)
        case datetime():
            if value.tzinfo:
                return format_instant((value - EPOCH) // timedelta(microseconds=1))
            return str(value)
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): _to_json_value(part) for name, part in value.items()}
        case list() | tuple():
            return [_to_json_value(part) for part in value]
        case _:
            return str(value)
