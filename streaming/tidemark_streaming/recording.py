"""Recordings: a table of records, replayed as files in the order in which they arrived.

A domain whose data is a recording says when each record arrived; all else is here. The files are
what a `FileFeed` finds in its folder, so a replay goes through the same door as live data.
"""

import csv
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import as_datetime, duration, instant
from tidemark.define.source import Source
from tidemark_streaming.feed import Excerpt, FileFeed, Inlet, Landed

ARRIVES = "arrives"
_DAY = duration("1 day")


@dataclass(frozen=True)
class Recording:
    """The recorded data of a source.

    Args:
        source: whose events they are; it has no column `arrives`.
        records: reads them: the source's columns, and `arrives`, when each arrived. That and the
            event time are timestamps in UTC of whole seconds; the rest is written as it is.
    """

    source: Source
    records: Callable[[], pd.DataFrame]

    @property
    def inlet(self) -> Inlet:
        """The way in of what is played."""
        return Inlet(source=self.source, feed=self._feed, play=self.play)

    def play(self, landing: Path, excerpt: Excerpt) -> Iterator[Landed]:
        """Land the records as csv files, one for each span of arrivals, as `Player` describes.

        A file's modification time is the end of its span; within it rows are in the order in which
        they arrived. A span without arrivals gives a file without rows. Spans are counted from
        midnight UTC, and a range is widened to whole spans.

        Raises:
            DefinitionError: a span, speed or range that can't be.
            DataError: the folder can't be written, or holds files of another span.
        """
        start, end, days, speed = excerpt.start, excerpt.end, excerpt.days, excerpt.speed
        step = duration(excerpt.span)
        if step <= 0 or (_DAY % step and step % _DAY):
            raise DefinitionError(
                f"A span divides a day or is whole days, unlike '{excerpt.span}'."
            )
        if speed is not None and speed <= 0:
            raise DefinitionError("A speed is more than zero.")
        records = self.records().sort_values(ARRIVES, kind="stable", ignore_index=True)
        arrived = _micros(records[ARRIVES])
        begin = _floor(int(arrived[0]), _DAY) if start is None else instant(start)
        stop = int(arrived[-1]) + 1 if end is None else instant(end)
        stop = stop if days is None else min(stop, begin + days * _DAY)
        starts = list(range(_floor(begin, step), stop, step))
        if not starts:
            return
        self._check_folder(landing, step)
        bounds = np.searchsorted(arrived, [*starts, starts[-1] + step])
        lines = self._lines(records.iloc[bounds[0] : bounds[-1]])
        header = ",".join(self.source.columns) + "\n"
        due = time.monotonic()
        for number, opens in enumerate(starts, 1):
            path = landing / self._name(opens, step)
            if not path.exists():
                if speed is not None:
                    due = max(due + step / 1e6 / speed, time.monotonic())
                    time.sleep(max(0.0, due - time.monotonic()))
                rows = lines[bounds[number - 1] - bounds[0] : bounds[number] - bounds[0]]
                _write(path, header + "".join(rows), opens + step)
            yield Landed(path, number, len(starts))

    def _feed(self, landing: Path) -> FileFeed:
        return FileFeed(self.source, landing, format="csv", options={"header": True})

    def _lines(self, records: pd.DataFrame) -> list[str]:
        happened = _micros(records[self.source.event_time]).astype("datetime64[us]")
        text = np.datetime_as_string(happened, unit="s", timezone="UTC")
        table = records.assign(**{self.source.event_time: text})[list(self.source.columns)].to_csv(
            index=False, header=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL
        )
        return table.splitlines(keepends=True)

    def _name(self, opens: int, step: int) -> str:
        return f"{self.source.name}_{as_datetime(opens):%Y%m%dT%H%M%S}{_suffix(step)}"

    def _check_folder(self, landing: Path, step: int) -> None:
        # Files of two spans would bring the same records twice.
        files = landing.glob(f"{self.source.name}_*.csv")
        other = next((p for p in files if not p.name.endswith(_suffix(step))), None)
        if other is not None:
            raise DataError(
                f"Folder '{landing}' holds files of another span, such as '{other.name}': play "
                "into an empty folder, or with the same span."
            )


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


def _micros(column: "pd.Series[pd.Timestamp]") -> npt.NDArray[np.integer]:
    return ((column - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(microseconds=1)).to_numpy()


def _suffix(step: int) -> str:
    return f"_{step // 1_000_000}s.csv"


def _floor(micros: int, step: int) -> int:
    return micros - micros % step
