"""File source connector: each file in a folder becomes an arrival."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.base.position import parse_with_text
from tidemark_streaming.connector import Chunk, processing_time
from tidemark_streaming.files import folder, reading
from tidemark_streaming.files.parquet import Parquet, read_parquet
from tidemark_streaming.ingest.row_masking import check
from tidemark_streaming.payloads import Json
from tidemark_streaming.payloads.csv_records import Csv
from tidemark_streaming.payloads.undeclared import MAX_NAMES


@checked_class
@dataclass(frozen=True)
class FileConnector:
    """A connector that reads the files in a folder: each file is one arrival.

    Files in subfolders are read too. Files arrive in the order of (modification time, name). An
    arrival's processing time is the file's modification time, or the processing time of the
    previous arrival if that is later. A new file with an old modification time is not missed: it is
    the next arrival. Write a file under a name that begins with `.` or `_`, and rename the file
    when it is complete: files and folders with such names are skipped. A file must not change after
    it was ingested: a file with another size or content is refused, because its new rows would be
    lost. An ingested file that is renamed, or moved within the folder, is not read again. A new
    file is refused if it begins with the rows of an ingested file that no longer exists, because
    these rows would count twice.

    A row with a value that its column can't hold exactly is a dead letter. An empty file is a
    heartbeat. Rows are decoded and protected in the memory of this process; the engine reads no
    file.

    Example:
        FileConnector(visits, Path("landing/visits"), format="csv", options={"header": True})

    Args:
        source: the source of the events.
        path: the folder.
        format: csv, json (one object per line) or parquet. CSV files have the source's columns in
            order. The header of an older file may lack the last columns, if the source gained them
            later.
        options: for CSV: `header`, `sep` and `nullValue`; for CSV and JSON: `timestampFormat` and
            `dateFormat`. `Csv` and `Json` describe them. `timeZone`, UTC by default, is the zone of
            times without a zone.
        names: a pattern, or several, for the names of the files to read, as in `"*.csv"` (`*` and
            `?` are wildcards). Other files are skipped. By default, all files are read except those
            that Windows and Excel create: `Thumbs.db`, `desktop.ini`, and `~$` files.
        accept_change: ingest files even if none of many rows can be decoded or has an event time,
            or if no event of a JSON file has one. By default, such files stop the source.
    """

    source: Source
    path: Path
    format: Literal["csv", "json", "parquet"] = "csv"
    options: Mapping[str, str | bool] = field(default_factory=dict)
    names: str | Sequence[str] = ()
    accept_change: bool = False
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self.source, f"The connector of source '{self.source.name}'")
        # Validates the options now instead of at the first file.
        _ = self._format

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        ingested = {arrival["file"]: arrival for arrival in _positions(timeline)}
        with_rows = {arrival["file"] for arrival in _positions(a for a in timeline if _has_rows(a))}
        clock = timeline[-1].arrived_at if timeline else None
        chunks: list[Chunk] = []
        with self._explain_errors():
            files = folder.list_files(self.path, self._patterns)
            displaced = folder.find_displaced(ingested, files)
            moved = Counter(folder.identity_of(ingested[name]) for name in displaced)
            # A file without rows, such as one with only a header, can't count twice.
            deleted_names = with_rows - {file.name for file in files}
            deleted = [ingested[name] for name in deleted_names]
            for file in files:
                before = ingested.get(file.name)
                if before is not None and file.name not in displaced:
                    continue
                # A file that is renamed or deleted at this moment is skipped.
                with suppress(FileNotFoundError):
                    if moved and moved[file.identity] > 0:
                        moved[file.identity] -= 1
                        continue
                    if before is not None:
                        self._check_unchanged(file, before)
                        continue
                    self._check_beginning(file, deleted)
                    modified = file.modified // 1000
                    later = processing_time(modified, clock)
                    chunks.append(Chunk(json.dumps(file.position), later, file.size))
                    clock = later
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
        self._undeclared_fields.clear()
        for chunk, position in enumerate(json.loads(c.position) for c in chunks):
            place = self.path, position["file"], chunk, self.source
            undeclared = set[str]()
            if isinstance(self._format, Parquet):
                yield from read_parquet(*place, self._format, undeclared)
            else:
                yield from reading.read_text(*place, self._format, undeclared)
            if undeclared:
                self._undeclared_fields[chunk] = tuple(sorted(undeclared)[:MAX_NAMES])
            self._check_still_unchanged(position)

    def undeclared_fields(self) -> Mapping[int, tuple[str, ...]]:
        return self._undeclared_fields

    def decode(self, letters: pa.Table) -> pa.Table:
        if isinstance(self._format, Parquet):
            raise DataError(
                f"Source '{self.source.name}' reads Parquet files, whose rows can't be decoded one "
                "by one, so its dead letters can't be replayed: put the corrected rows in a new "
                "file."
            )
        if self.source.mask:
            raise DataError(
                f"Source '{self.source.name}' has protected columns, so its dead letters do not "
                "keep the bytes of their rows: put the corrected rows in a new file."
            )
        return reading.decode_letters(letters, self.source, self._format)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert errors of the file system into error messages of the source."""
        try:
            yield
        except FileNotFoundError:
            raise DataError(
                f"There is no folder '{self.path}', from which source '{self.source.name}' reads: "
                "create it and put files there, or correct the setting landing."
            ) from None
        except OSError as error:
            raise DataError(
                f"'{error.filename or self.path}' of source '{self.source.name}' can't be read: "
                f"{(error.strerror or str(error)).lower()}."
            ) from error

    def _check_unchanged(self, file: folder.File, before: Mapping[str, Any]) -> None:
        if file.has_changed(before):
            sizes = f"{before['bytes']} bytes before, {file.size} now"
            how = sizes if file.size != before["bytes"] else f"{file.size} bytes, but other content"
            raise DataError(
                f"File '{file.path}' of source '{self.source.name}' has changed since it was "
                f"ingested ({how}): restore it, and put new rows in a new file."
            )

    def _check_beginning(self, file: folder.File, deleted: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a new file if its first rows were ingested from another file that was deleted."""
        beginning = folder.find_beginning(file, deleted)
        if beginning is None:
            return
        what = f"File '{file.path}' of source '{self.source.name}'"
        earlier = f"'{beginning['file']}', which was ingested and no longer exists"
        if beginning["bytes"] < file.size:
            raise DataError(
                f"{what} begins with the content of {earlier}: it was probably renamed after only "
                f"its first {beginning['bytes']} bytes were ingested, and these rows would count "
                f"twice. Move it out of the folder, and put the rows after byte "
                f"{beginning['bytes']} in a new file. Until a file is complete, its name must "
                "begin with '.' or '_', or not match `names` of the connector."
            )
        raise DataError(
            f"{what} has the content and the modification time of {earlier}: it is probably a "
            "copy, whose rows would count twice. Move it out of the folder. If its rows are new "
            "events, run `touch` on the file."
        )

    def _check_still_unchanged(self, position: Mapping[str, Any]) -> None:
        """Raise an error if a file changed while it was read, because `position` would then not
        describe the rows that were read."""
        path = self.path / position["file"]
        with reading.explain_errors(path, self.source, "it is damaged"):
            if not folder.is_unchanged(self.path, position):
                raise DataError(
                    f"File '{path}' of source '{self.source.name}' changed while it was read, so "
                    "nothing of it is ingested. Write files under a name that begins with '.' or "
                    "'_', and rename them when they are complete.",
                    retriable=True,
                )

    @property
    def must_have_event_times(self) -> bool:
        """True if an arrival of which no event has an event time stops the source.

        A CSV file and a Parquet file name their columns, so such a file has the column of the event
        time. In a JSON file, the field may have another name.
        """
        return self.format == "json"

    @cached_property
    def _undeclared_fields(self) -> dict[int, tuple[str, ...]]:
        return {}

    @property
    def _patterns(self) -> Sequence[str]:
        return (self.names,) if isinstance(self.names, str) else self.names

    @cached_property
    def _format(self) -> Csv | Json | Parquet:
        if self.format == "parquet":
            return Parquet(self.options)
        if self.format == "csv":
            return Csv(self.options)
        return Json({name: str(value) for name, value in self.options.items()})


def _positions(arrivals: Iterable[Arrival]) -> Iterator[dict[str, Any]]:
    """Yield the positions of the arrivals that are files."""
    # Heartbeats repeat the position of the previous arrival.
    for position in dict.fromkeys(arrival.position for arrival in arrivals):
        parsed = parse_with_text(position, "file")
        if parsed is not None:
            yield parsed


def _has_rows(arrival: Arrival) -> bool:
    return arrival.rows > 0 or arrival.dead_letters > 0
