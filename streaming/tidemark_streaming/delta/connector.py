"""Delta source connector: each version of a table is an arrival."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import Any, ClassVar

from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base import thresholds
from tidemark.base.arguments import checked_class
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import NOT_IN_PATHS
from tidemark.define.source import Source
from tidemark.store.committers.log_entry import version_id
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.rows import Rows, to_frame
from tidemark_streaming.base.local_times import zone_of
from tidemark_streaming.base.position import parse_with_text
from tidemark_streaming.connector import Chunk, processing_time
from tidemark_streaming.delta.row_reader import RowReader
from tidemark_streaming.delta.table_checks import TableChecks
from tidemark_streaming.delta.table_history import TableHistory, name_versions
from tidemark_streaming.delta.versions import Commit
from tidemark_streaming.ingest.accepted_losses import Acceptance, with_losses
from tidemark_streaming.ingest.row_masking import check_maskable


@dataclass(frozen=True)
class _Resumption:
    """Where a poll continues.

    Args:
        first: the first version to read.
        is_start: true if no version of this table has been read.
        losses: what was lost before that version.
    """

    first: int
    is_start: bool = False
    losses: tuple[str, ...] = ()

    @property
    def whole_version(self) -> int | None:
        """The version as of which all rows of the table are read; None if there is none."""
        if self.is_start and self.first > 0:
            return self.first
        return None


@checked_class
@dataclass(frozen=True)
class DeltaConnector:
    """A connector that reads a Delta table that another program writes: each version is one
    arrival.

    The timeline stores the version that an arrival ingested, and the next arrival continues after
    it. The processing time of an arrival is the commit time as Delta's protocol defines it: the
    in-commit timestamp if the table has them, else the modification time of the commit's file. A
    version without new data, for example a compaction, is an arrival without rows. The connector
    never writes to the table.

    The event log is append-only, so a version that updates or deletes rows stops the source, unless
    `change_feed` or `skip_change_commits` is set. A version whose log entry or files no longer
    exist also stops it, until that loss is accepted.

    If the source has protected columns, this process reads all rows of a version into its memory
    and protects them there. The engine gets only protected rows.

    Example:
        DeltaConnector(visits, "/srv/lake/visits", start=12)

    Args:
        source: the source of the events. The table may have more columns.
        path: the table, which the engine must see under the same path.
        start: the first version to read. If it is greater than 0, the arrival of this version has
            all rows of the table as of this version.
        time_zone: the zone in which columns of the type `timestamp_ntz` are written, as in `"UTC"`
            or `"Europe/Berlin"`. Without it they can't be TIMESTAMP columns of the source.
        change_feed: read the table's change data feed: each change of a row is an event, which the
            columns in `CHANGE` describe. An update is two events, the row before and after it.
        skip_change_commits: versions that update or delete rows become arrivals without rows.
        accept_loss: continue past versions that are already lost at the first poll of this
            connector. The position of the next arrival records the loss. A later loss is an error
            again.
        accept_change: ingest rows even if none of many rows has an event time, or each has a value
            that no table can store. By default, such rows stop the source.

    Raises:
        DefinitionError: `start` is negative, `path` has a character that delta-rs can't read, both
            `change_feed` and `skip_change_commits` are set, or the time zone is unknown.
    """

    source: Source
    path: str
    start: int = 0
    change_feed: bool = False
    skip_change_commits: bool = False
    accept_loss: bool = False
    time_zone: str | None = None
    accept_change: bool = False
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = f"The connector of source '{self.source.name}'"
        check_maskable(self.source, owner)
        if self.start < 0:
            raise DefinitionError(f"{owner} needs a `start` of 0 or greater (got {self.start}).")
        if unusable := sorted(set(NOT_IN_PATHS) & set(self.path)):
            raise DefinitionError(
                f"{owner} has the path '{self.path}', which contains {' '.join(unusable)}. Move "
                "the table: its path must not contain any of the characters "
                f"{' '.join(NOT_IN_PATHS)}."
            )
        if self.time_zone is not None:
            zone_of(self.time_zone, owner)
        if self.change_feed and self.skip_change_commits:
            raise DefinitionError(f"{owner} can have change_feed or skip_change_commits, not both.")

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        table = self._history.open_table()
        self._checks.check_table(table)
        newest = table.version()
        resumption = self._find_resumption(table, timeline)
        commits = dict[int, Commit | None]()
        missing = list[int]()
        losses = list(resumption.losses)
        for version in range(resumption.first, newest + 1):
            is_whole = version == resumption.whole_version
            commit = self._history.read_version(version, is_whole=is_whole)
            commits[version] = commit
            if commit is None:
                missing.append(version)
                losses.append(name_versions([version]))
        refused = self._acceptance.select_refused(losses)
        self._check_resumption(resumption, newest, refused)
        clock = timeline[-1].arrived_at if timeline else None
        losses = list(resumption.losses)
        skipped: list[int] = []
        chunks: list[Chunk] = []
        for version, commit in commits.items():
            if commit is None and name_versions([version]) not in refused:
                skipped.append(version)
                continue
            is_whole = version == resumption.whole_version
            if commit is None or self._is_refused_update(commit, is_whole=is_whole):
                if chunks:
                    # The versions before the refused one are ingested first.
                    return chunks
                if commit is None:
                    lost = takewhile(missing.__contains__, count(version))
                    raise self._history.lost_error(list(lost), newest)
                raise self._update_error(version)
            if skipped:
                losses.append(f"{name_versions(skipped)} (deleted)")
            clock = processing_time(commit.committed_at, clock)
            position = self._describe_position(table, version, is_whole=is_whole)
            position = with_losses(position, losses)
            chunks.append(Chunk(position, clock, commit.bytes, commit.rows))
            losses = []
            skipped = []
        return chunks

    def _find_resumption(self, table: DeltaTable, timeline: Sequence[Arrival]) -> _Resumption:
        """Return where to continue after the arrivals of the timeline."""
        last = _find_last_position(timeline)
        if last is None:
            return _Resumption(self.start, is_start=True)
        version = last["version"]
        if last["table"] != str(table.metadata().id):
            loss = f"it was recreated under its path after version {version}"
            return _Resumption(self.start, is_start=True, losses=(loss,))
        newest = table.version()
        if newest == version or self._history.has_version(last, newest):
            return _Resumption(version + 1)
        loss = (
            f"it was restored from a copy, so its version {version} is no longer the one that was "
            "read"
        )
        return _Resumption(min(version, newest) + 1, losses=(loss,))

    def _check_resumption(
        self, resumption: _Resumption, newest: int, refused: Collection[str]
    ) -> None:
        """Refuse to continue after a loss that is not accepted, or with a version to come.

        Args:
            newest: the newest version of the table.
            refused: the losses that the user has not accepted.
        """
        first = resumption.first
        if refused and any(loss in refused for loss in resumption.losses):
            if resumption.is_start:
                way = f"To read the new table from version {first} on"
            else:
                way = (
                    f"To continue with version {first}, without the commits before it that were "
                    "not read"
                )
            raise DataError(
                f"{self._checks.table_name} is not the table that was read before: "
                f"{resumption.losses[0]}. {way}, pass --allow-data-loss."
            )
        if resumption.is_start and first > newest:
            raise DataError(
                f"{self._checks.table_name} does not have version {first} yet: its newest version "
                f"is {newest}. Set `start` to {newest} or less, or wait for that version."
            )

    def _is_refused_update(self, commit: Commit, *, is_whole: bool) -> bool:
        """Return whether a version updates or deletes rows, which the event log can't.

        Args:
            is_whole: true if all rows of the table are read as of the version.
        """
        if is_whole or self.change_feed or self.skip_change_commits:
            return False
        return bool(commit.changes)

    def _describe_position(self, table: DeltaTable, version: int, *, is_whole: bool) -> str:
        position: dict[str, Any] = {
            "table": str(table.metadata().id),
            "version": version,
            "version_id": version_id(self.path, version),
        }
        if is_whole:
            position["whole"] = True
        return json.dumps(position)

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        try:
            rows = self._read_rows(spark, chunks)
        except Exception:
            # If the table was recreated in the meantime, raise the error for that instead. This
            # error may be only a consequence.
            self._check_not_recreated(chunks)
            raise
        # One check after the read is enough, because a table that was replaced does not come back.
        self._check_not_recreated(chunks)
        return rows

    def _read_rows(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows:
        rows_in_memory = sum(chunk.rows for chunk in chunks)
        bytes_in_memory = sum(chunk.bytes for chunk in chunks)
        is_large = (
            rows_in_memory > thresholds.SMALL_BATCH_ROWS
            or bytes_in_memory > thresholds.SMALL_BATCH_BYTES
        )
        # Columns are masked in this process, and the changes of a feed are read here, too.
        if is_large and not self.change_feed and not self.source.mask:
            return self._row_reader.read_by_engine(spark, chunks)
        rows = self._row_reader.read_in_memory(chunks)
        if self.source.mask:
            return rows
        return to_frame(spark, rows)

    def explain_error(self, error: PySparkException) -> DataError | None:
        """Return the error for a file that the engine does not see; None for other errors."""
        condition = error.getCondition() or ""
        if not condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
            return None
        path = (error.getMessageParameters() or {}).get("path", self.path)
        return DataError(
            f"{self._checks.table_name} has a file that the engine can't read, "
            f"'{path.removeprefix('file://')}'. Make sure that the engine sees the table under the "
            "same path. If VACUUM has just deleted the file, the next ingest reports its version."
        )

    def _check_not_recreated(self, chunks: Sequence[Chunk]) -> None:
        """Raise an error if chunks come from another table than the table that is at the path now.

        Raises:
            DataError: the table was recreated under its path.
        """
        current_id = str(self._history.open_table().metadata().id)
        if any(json.loads(chunk.position)["table"] != current_id for chunk in chunks):
            raise DataError(
                f"{self._checks.table_name} was recreated under its path while it was read. Start "
                "the ingest again: it reports what is lost."
            )

    def _update_error(self, version: int) -> DataError:
        return DataError(
            f"Version {version} of Delta table '{self.path}' updates or deletes rows, but the "
            f"event log of source '{self.source.name}' keeps its rows. Set change_feed=True to "
            "ingest each change as an event, or skip_change_commits=True to skip such versions."
        )

    @cached_property
    def _acceptance(self) -> Acceptance:
        return Acceptance(is_accepted=self.accept_loss)

    @cached_property
    def _checks(self) -> TableChecks:
        return TableChecks(self.source, self.path, self.start, self.change_feed, self.time_zone)

    @cached_property
    def _history(self) -> TableHistory:
        return TableHistory(self._checks)

    @cached_property
    def _row_reader(self) -> RowReader:
        return RowReader(self._history, self._checks)


def _find_last_position(timeline: Sequence[Arrival]) -> dict[str, Any] | None:
    """Return the newest position that a Delta connector has written; None if there is none."""
    for arrival in reversed(timeline):
        position = parse_with_text(arrival.position, "table")
        if position is not None:
            return position
    return None
