"""Recordings: tables of records, which are played as files in the order of arrival.

A domain with recorded data provides the records with their arrival times; this module writes them
to files. A `FileConnector` finds the files in its folder, so they are ingested like live data.
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

from tidemark.base.errors import DataError
from tidemark.base.instants import as_datetime, parse_duration, parse_instant
from tidemark.define.source import Source
from tidemark_streaming.connector import Excerpt, Ingestion, Landed, Span
from tidemark_streaming.files import FileConnector

ARRIVES = "arrives"
_DAY = parse_duration("1 day")


@dataclass(frozen=True)
class Recording:
    """The recorded data of a source.

    Args:
        source: the source of the events; it has no column `arrives`.
        records: returns the source's columns and `arrives`, the arrival time of each record. The
            column `arrives` and the event time are timestamps in UTC; the event time may be null.
            All other columns are written unchanged.
    """

    source: Source
    records: Callable[[], pd.DataFrame]

    @property
    def to_ingestion(self) -> Ingestion:
        """The source with a `FileConnector` and this recording."""
        return Ingestion(
            source=self.source,
            connector=self._file_connector,
            play=self.write_files,
            spans=self.read_spans,
        )

    def write_files(self, landing: Path, excerpt: Excerpt) -> Iterator[Landed]:
        """Write the records as CSV files, one for each span of arrivals, as `Player` describes.

        A file's modification time is the end of its span. A span without arrivals gives a file
        without rows.

        Raises:
            DefinitionError: the range is not valid.
            DataError: the folder can't be written, or has files of another span.
        """
        step = parse_duration(excerpt.span)
        due = time.monotonic()
        header = ",".join(self.source.record_fields) + "\n"
        for span in self.read_spans(excerpt):
            if span.number == 1:
                self._check_folder(landing, step)
            path = landing / self._file_name(span.ends - step, step)
            if not path.exists():
                if excerpt.speed is not None:
                    due = max(due + step / 1e6 / excerpt.speed, time.monotonic())
                    time.sleep(max(0.0, due - time.monotonic()))
                _write_file(path, header + _csv_text(span.records), span.ends)
            yield Landed(path, span.number, span.total)

    def read_spans(self, excerpt: Excerpt) -> Iterator[Span]:
        """Yield the records of each span of processing time, in the order of arrival.

        Spans are counted from 1970-01-01 00:00 UTC, and the range is extended to whole spans.

        Raises:
            DefinitionError: the range is not valid.
        """
        start = excerpt.start
        end = excerpt.end
        days = excerpt.days
        step = parse_duration(excerpt.span)
        records = self.records().sort_values(ARRIVES, kind="stable", ignore_index=True)
        arrived = _to_micros(records[ARRIVES])
        if not len(arrived) and (start is None or end is None):
            return
        begin = _floor_to_step(int(arrived[0]), _DAY) if start is None else parse_instant(start)
        stop = int(arrived[-1]) + 1 if end is None else parse_instant(end)
        stop = stop if days is None else min(stop, begin + days * _DAY)
        starts = list(range(_floor_to_step(begin, step), stop, step))
        if not starts:
            return
        bounds = np.searchsorted(arrived, [*starts, starts[-1] + step])
        rows = self._field_table(records.iloc[bounds[0] : bounds[-1]])
        for n, opens in enumerate(starts):
            part = rows.iloc[bounds[n] - bounds[0] : bounds[n + 1] - bounds[0]]
            yield Span(part, opens + step, n + 1, len(starts))

    def _file_connector(self, landing: str) -> FileConnector:
        options: dict[str, str | bool] = {"header": True, "timeZone": "UTC"}
        return FileConnector(self.source, landing, format="csv", options=options)

    def _field_table(self, records: pd.DataFrame) -> pd.DataFrame:
        """Return the source's fields, with the event time as text, or None if it is null."""
        names = list(self.source.record_columns)
        fields = list(self.source.record_fields)
        if self.source.event_time not in names:
            return records[names].set_axis(fields, axis="columns")
        happened = _to_micros(records[self.source.event_time]).astype("datetime64[us]")
        has_whole_seconds = (happened == happened.astype("datetime64[s]")) | np.isnat(happened)
        unit = "s" if has_whole_seconds.all() else "us"
        text = np.datetime_as_string(happened, unit=unit, timezone="UTC").astype(object)
        text[np.isnat(happened)] = None
        columns = records.assign(**{self.source.event_time: text})[names]
        return columns.set_axis(fields, axis="columns")

    def _file_name(self, opens: int, step: int) -> str:
        return f"{self.source.name}_{as_datetime(opens):%Y%m%dT%H%M%S}{_name_suffix(step)}"

    def _check_folder(self, landing: Path, step: int) -> None:
        # With files of two span lengths, the same records would arrive twice.
        files = landing.glob(f"{self.source.name}_*.csv")
        other = next((p for p in files if not p.name.endswith(_name_suffix(step))), None)
        if other is not None:
            raise DataError(
                f"Folder '{landing}' has files of another --span, such as '{other.name}', whose "
                "name ends with its span in seconds: use that --span, or empty the folder."
            )


def _csv_text(records: pd.DataFrame) -> str:
    return records.to_csv(index=False, header=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)


def _write_file(path: Path, text: str, modified: int) -> None:
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


def _to_micros(column: "pd.Series[pd.Timestamp]") -> npt.NDArray[np.integer]:
    return ((column - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(microseconds=1)).to_numpy()


def _name_suffix(step: int) -> str:
    return f"_{step // 1_000_000}s.csv"


def _floor_to_step(micros: int, step: int) -> int:
    return micros - micros % step
