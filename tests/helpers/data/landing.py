"""A small file source: readings that arrive file by file."""

import os
import random
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from tidemark.base.instants import format_instant
from tidemark.define import aggregates as agg
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling
from tidemark.store.committers.file_systems import file_system
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.files import FileConnector

T0 = 1_700_000_000
HEADER = "at,sensor,value\n"
NO_ENGINE: Any = None
"""The session of a connector that reads without the engine."""
SOURCE = Source(
    name="sensors",
    columns={"at": "TIMESTAMP", "sensor": "STRING", "value": "INT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
)

BY_MINUTE = WindowedTransform(
    name="by_minute",
    description="Readings by sensor and minute.",
    source=SOURCE,
    keys=("sensor",),
    window=Tumbling("1 minute"),
    allowed_lateness=0,
    aggregates={"readings": agg.count()},
    function=lambda rows: rows,
)


def land(folder: Path, name: str, text: str | bytes, seconds: float) -> Path:
    """Write a file that was modified `seconds` after the first. Return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (T0 + seconds, T0 + seconds))
    return path


def put(place: str, name: str, content: bytes | str) -> None:
    """Write a file, at present, to a path or to an address of an object store."""
    files, folder = file_system(place)
    path = f"{folder}/{name}"
    files.create_dir(path.rpartition("/")[0])
    # By default, Arrow compresses a file with such a name.
    with files.open_output_stream(path, compression=None) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def delete(place: str, name: str) -> None:
    """Delete a file that `put` has written."""
    files, folder = file_system(place)
    files.delete_file(f"{folder}/{name}")


def land_some(folder: Path, count: int, seed: int = 5) -> None:
    """Write out-of-order files with an unparsable row, null event times and an empty file."""
    chance = random.Random(seed)
    for number in range(count):
        rows = [
            f"{clock(number * 60 - chance.randrange(200))},{chance.choice('ab')},{n}"
            for n in range(chance.randrange(1, 6))
        ]
        rows += [",c,1", "gibberish,c,1"] if number % 3 == 1 else []
        rows = [] if number == 2 else rows
        land(folder, f"{number:03}.csv", HEADER + "".join(f"{r}\n" for r in rows), number * 60)


def land_minutes(folder: Path, first: int, last: int) -> None:
    """Write a file with two readings for each minute."""
    for minute in range(first, last):
        rows = f"{clock(minute * 60)},a,{minute}\n{clock(minute * 60 + 30)},b,{minute}\n"
        land(folder, f"{minute:03}.csv", f"at,sensor,value\n{rows}", minute * 60)


def clock(seconds: int) -> str | None:
    return format_instant((T0 + seconds) * 1_000_000)


def connector(folder: Path | str) -> FileConnector:
    return FileConnector(SOURCE, folder, options={"header": True, "timeZone": "UTC"})


def log_rows(warehouse: Warehouse, source: Source = SOURCE) -> list[tuple[object, ...]]:
    """Return all rows of the event log with the facts of their arrival, in order."""
    rows = warehouse.read_frame(Log(warehouse, source).source.log_table)
    columns = [F.unix_micros(c) if t == "timestamp" else F.col(c) for c, t in rows.dtypes]
    return [tuple(r) for r in rows.orderBy("arrival", "position").select(*columns).collect()]
