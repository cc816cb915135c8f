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
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.source import Source
from tidemark.store.committers.file_systems import FileChangedError
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.refusals import store_failure
from tidemark_streaming.base.position import parse_with_text
from tidemark_streaming.connector import Chunk, processing_time
from tidemark_streaming.files import reading
from tidemark_streaming.files.folders import check_place, open_folder
from tidemark_streaming.files.landed_file import (
    LandedFile,
    LandingFolder,
    find_beginning,
    find_displaced,
    identity_of,
)
from tidemark_streaming.files.parquet import Parquet, read_parquet
from tidemark_streaming.ingest.row_masking import check_maskable
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
        path: the folder, or its address in an object store, such as `s3://bucket/visits`.
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
    path: Path | str
    format: Literal["csv", "json", "parquet"] = "csv"
    options: Mapping[str, str | bool] = field(default_factory=dict)
    names: str | Sequence[str] = ()
    accept_change: bool = False
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_maskable(self.source, f"The connector of source '{self.source.name}'")
        try:
            check_place(self.path)
        except ValueError as error:
            raise DefinitionError(
                f"The connector of source '{self.source.name}' has the path '{self.path}': {error}."
            ) from None
        # Validates the options now instead of at the first file.
        _ = self._file_format

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        ingested = {arrival["file"]: arrival for arrival in _file_positions(timeline)}
        arrivals_with_rows = filter(_has_rows, timeline)
        with_rows = {position["file"] for position in _file_positions(arrivals_with_rows)}
        clock = timeline[-1].arrived_at if timeline else None
        chunks: list[Chunk] = []
        with self._explain_errors():
            files = self._landing_folder.list_files(self._name_patterns)
            displaced = find_displaced(ingested, files)
            moved = Counter(identity_of(ingested[name]) for name in displaced)
            # A file without rows, such as one with only a header, can't count twice.
            deleted_names = with_rows - {file.name for file in files}
            deleted = [ingested[name] for name in deleted_names]
            unknown = [f for f in files if f.name not in ingested or f.name in displaced]
            self._landing_folder.compute_checksums(unknown)
            for file in unknown:
                ingested_position = ingested.get(file.name)
                # A file that is renamed or deleted at this moment is skipped.
                with suppress(FileNotFoundError):
                    if moved and moved[file.identity] > 0:
                        moved[file.identity] -= 1
                        continue
                    if ingested_position is not None:
                        self._check_unchanged(file, ingested_position)
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
            file = self._landing_folder.find_file(position)
            undeclared = set[str]()
            if isinstance(self._file_format, Parquet):
                yield from read_parquet(file, chunk, self.source, self._file_format, undeclared)
            else:
                yield from reading.read_text(
                    file, chunk, self.source, self._file_format, undeclared
                )
            if undeclared:
                self._undeclared_fields[chunk] = tuple(sorted(undeclared)[:MAX_NAMES])
            # If the file changed, its position does not describe the rows that were read.
            with reading.explain_errors(file, self.source, "it is damaged"):
                file.check_unchanged()

    def undeclared_fields(self) -> Mapping[int, tuple[str, ...]]:
        return self._undeclared_fields

    def decode_letters(self, letters: pa.Table) -> pa.Table:
        if isinstance(self._file_format, Parquet):
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
        return reading.decode_letters(letters, self.source, self._file_format)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert errors of the file system into error messages of the source."""
        try:
            yield
        except FileChangedError as error:
            raise DataError(
                f"{error} It is a file of source '{self.source.name}', and was being read: the "
                "next ingest reads it again.",
                retriable=True,
            ) from None
        except FileNotFoundError:
            raise DataError(
                f"There is no folder '{self.path}', from which source '{self.source.name}' reads: "
                "create it and put files there, or correct the setting landing."
            ) from None
        except OSError as error:
            if failed := store_failure(error):
                raise failed from error
            raise DataError(
                f"'{error.filename or self.path}' of source '{self.source.name}' can't be read: "
                f"{(error.strerror or str(error)).lower()}."
            ) from error

    def _check_unchanged(self, file: LandedFile, arrival: Mapping[str, Any]) -> None:
        if file.has_changed(arrival):
            sizes = f"{arrival['bytes']} bytes before, {file.size} now"
            how = (
                sizes if file.size != arrival["bytes"] else f"{file.size} bytes, but other content"
            )
            raise DataError(
                f"File '{file.location}' of source '{self.source.name}' has changed since it was "
                f"ingested ({how}): restore it, and put new rows in a new file."
            )

    def _check_beginning(self, file: LandedFile, deleted: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a new file if its first rows were ingested from another file that was deleted."""
        beginning = find_beginning(file, deleted)
        if beginning is None:
            return
        subject = f"File '{file.location}' of source '{self.source.name}'"
        earlier = f"'{beginning['file']}', which was ingested and no longer exists"
        if beginning["bytes"] < file.size:
            raise DataError(
                f"{subject} begins with the content of {earlier}: it was probably renamed after "
                "only "
                f"its first {beginning['bytes']} bytes were ingested, and these rows would count "
                f"twice. Move it out of the folder, and put the rows after byte "
                f"{beginning['bytes']} in a new file. Until a file is complete, its name must "
                "begin with '.' or '_', or not match `names` of the connector."
            )
        if file.copies_keep_time:
            raise DataError(
                f"{subject} has the content and the modification time of {earlier}: it is "
                "probably a "
                "copy, whose rows would count twice. Move it out of the folder. If its rows are "
                "new events, run `touch` on the file."
            )
        raise DataError(
            f"{subject} has the content of {earlier}: it was probably moved or copied, and its "
            "rows "
            "would count twice. Move it out of the folder. If its rows are new events, put "
            f"'{beginning['file']}' back until this file is ingested."
        )

    @property
    def poll_seconds(self) -> float:
        return self._landing_folder.poll_seconds

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

    @cached_property
    def _landing_folder(self) -> LandingFolder:
        return open_folder(self.path)

    @property
    def _name_patterns(self) -> Sequence[str]:
        if isinstance(self.names, str):
            return (self.names,)
        return self.names

    @cached_property
    def _file_format(self) -> Csv | Json | Parquet:
        if self.format == "parquet":
            return Parquet(self.options)
        if self.format == "csv":
            return Csv(self.options)
        return Json({name: str(value) for name, value in self.options.items()})


def _file_positions(arrivals: Iterable[Arrival]) -> Iterator[dict[str, Any]]:
    """Yield the positions of the arrivals that are files."""
    # Heartbeats repeat the position of the previous arrival.
    for position in dict.fromkeys(arrival.position for arrival in arrivals):
        parsed = parse_with_text(position, "file")
        if parsed is not None:
            yield parsed


def _has_rows(arrival: Arrival) -> bool:
    return arrival.rows > 0 or arrival.dead_letters > 0
