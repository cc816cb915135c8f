"""Publish the changes of a published table that its topic does not have yet.

The input is the change data feed of the published table, not the table of panes. The feed has one
version for each run, release from quarantine, backfill and correction, and includes the removal of
merged sessions. The records of the topic therefore always add up to the published table. The table
of panes is read only in discarding mode, for the values of single firings.

A transaction publishes whole versions in order, with the last version as its position. After a kill
at any instant, the next writer continues from the position in the topic. If the changes since that
position are unavailable, a new epoch begins: the writer sends reset records, which retract
everything, and then the table as it is.

| a new epoch begins if | because |
| --- | --- |
| nothing was published yet, or the topic of positions was deleted | the position is missing |
| the asset was dropped and recreated | its table or its state has another ID |
| the table's history does not go back far enough | the writer did not run for a long time |
| the table was restored from a backup | the topic has versions that no longer exist, or that are |
| | now other commits, even if runs have passed them |
| the topic was recreated, or has more partitions | keys map to other partitions |
| another definition rebuilt the table, or a rebuild was rolled back | rows may have other keys |
"""

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.base import telemetry, thresholds
from tidemark.base.errors import (
    DefinitionChangedError,
    DefinitionError,
    HistoryExpiredError,
    TidemarkError,
)
from tidemark.base.telemetry import Clock
from tidemark.define.definition import Definition
from tidemark.store.asset import Asset
from tidemark.store.commits.conditions import InRanges
from tidemark.store.committers.values import Head
from tidemark.store.rows import to_display as in_python
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.kafka.topic import KafkaSink
from tidemark_streaming.sink.changes import Change, derive_changes, rows_as_changes, split_versions
from tidemark_streaming.sink.panes import FiringsByWindow, Pane, derive_panes, index_firings
from tidemark_streaming.sink.position import Position
from tidemark_streaming.sink.record import Record, render_record, reset_records
from tidemark_streaming.sink.transactional_topic import TransactionalTopic


@dataclass(frozen=True)
class PublishResult:
    """The number of published records, and the position of the topic after them.

    Args:
        records: the number of records in all transactions.
        position: the position of the topic; None if the asset has no table yet.
    """

    records: int
    transactions: int
    position: Position | None

    def and_then(self, more: "PublishResult") -> "PublishResult":
        """Return the sum of this result and a later one, with the later position."""
        records = self.records + more.records
        transactions = self.transactions + more.transactions
        return PublishResult(records, transactions, more.position)


class SinkWriter:
    """Publishes an asset's panes to the asset's topic."""

    def __init__(self, warehouse: Warehouse, definition: Definition) -> None:
        self.topic = topic_of(definition)
        self._warehouse = warehouse
        self._transform = definition
        self._channel = open_topic(definition, warehouse)
        self._position: Position | None = None
        self._runs: dict[int, str | None] = {}

    def publish_changes(self, *, reset: bool = False) -> PublishResult:
        """Publish all changes that the topic does not have yet.

        Args:
            reset: begin a new epoch, with the table as it is.
        """
        head = self._read_head()
        if head is None:
            return PublishResult(0, 0, None)
        if not self._channel.is_open and not reset:
            # Reading the position is harmless; opening the producer would fence the producer of
            # another process.
            self._position = self._channel.read_position()
            topic = self._channel.find_topic()
            # Another process may have published newer versions since the table was read.
            head = self._read_head() if self._is_ahead(head) else head
            if head is None or self._is_up_to_date(head, topic):
                return PublishResult(0, 0, self._position)
        records = transactions = 0
        while True:
            # A table may be dropped and recreated at any time. Each iteration therefore reads the
            # topic and its position first, and then the version of the table.
            topic = self._ready_topic(any_database=reset)
            head = self._read_head()
            if head is None or (self._is_up_to_date(head, topic) and not reset):
                break
            try:
                records += self._publish_changes(topic, head, reset=reset)
                transactions = transactions + 1
                reset = False
            except TidemarkError:
                raise
            except Exception:
                current_head = self._read_head()
                if current_head is not None and current_head.table_id == head.table_id:
                    raise
        return PublishResult(records, transactions, self._position)

    def _read_head(self) -> Head | None:
        return self._warehouse.find_head(self._transform.published_table)

    def _ready_topic(self, *, any_database: bool) -> Topic:
        """Open the producer if necessary. Return the topic, recreated if it was deleted."""
        for _ in range(2):
            if not self._channel.is_open:
                self._channel.open_producer()
                self._position = self._channel.read_position(
                    any_database=any_database, wait_for_transactions=True
                )
            if (topic := self._channel.find_topic()) is not None:
                return topic
            self._channel.close()
        raise self._channel.missing_error()

    def _is_ahead(self, head: Head) -> bool:
        """Return whether the topic has changes of later versions of this table than `head`."""
        position = self._position
        return (
            position is not None
            and position.table == head.table_id
            and position.version > head.version
        )

    def _is_up_to_date(self, head: Head, topic: Topic | None) -> bool:
        """Return whether the topic exists and has all changes through the version `head`."""
        position = self._position
        return (
            position is not None
            and (position.table, position.version) == (head.table_id, head.version)
            and is_current(position, topic)
            and self._has_version(position)
        )

    def _has_version(self, position: Position) -> bool:
        """Return whether the table still has the very version whose changes the topic has.

        After the table was restored from a backup, another commit may have its number.
        """
        return has_version(self._warehouse, self._transform, position)

    def _publish_changes(self, topic: Topic, head: Head, *, reset: bool) -> int:
        """Publish one transaction. Return the number of records."""
        published = self._position
        if (
            published is None
            or reset
            or published.table != head.table_id
            or not is_current(published, topic)
        ):
            return self._begin_epoch(topic)
        # The ID of the state is read before the commits that the state numbered. If another state
        # replaces it in between, the next call finds another ID and begins a new epoch.
        state = self._state.table_id() or published.state
        if self._is_ahead(head) or state != published.state or not self._has_version(published):
            return self._begin_epoch(topic)
        through = min(published.version + thresholds.TRANSACTION_VERSIONS, head.version)
        try:
            feed = self._warehouse.load_changes(
                self._transform.published_table, published.version, through
            )
        except HistoryExpiredError:
            return self._begin_epoch(topic)
        current_head = self._read_head()
        if (
            current_head is None
            or current_head.table_id != head.table_id
            or self._load_runs(published.commit_number)
        ):
            return self._begin_epoch(topic)
        self._check_columns(feed)
        firings = self._firings_since(feed)
        window_columns = self._transform.by_window
        versions = split_versions(feed)
        changes = chain.from_iterable(derive_changes(rows, window_columns) for rows in versions)
        position = replace(
            published, version=through, version_id=self._version_id(through), state=state
        )
        return self._send_changes(position, changes, firings)

    def _begin_epoch(self, topic: Topic) -> int:
        """Begin a new epoch with the table as it is. Return the number of records."""
        # The ID of the state is read before the rows, as in `_publish_changes`.
        state = self._state.table_id() or ""
        head, rows = self._warehouse.load_snapshot(self._transform.published_table)
        self._check_columns(rows)
        begun_at = time.time_ns() // 1000
        epoch = begun_at if self._position is None else max(begun_at, self._position.epoch + 1)
        begun = Position(
            head.table_id,
            head.version,
            topic.id,
            len(topic.offsets),
            epoch,
            -1,
            None,
            begun_at,
            place=self._channel.place,
            state=state,
            version_id=self._version_id(head.version),
        )
        self._load_runs(-1)
        return self._send_changes(
            begun,
            rows_as_changes(rows),
            {},
            reset_records(self._transform, epoch, begun.partitions),
        )

    def _send_changes(
        self,
        position: Position,
        changes: Iterator[Change],
        firings: FiringsByWindow,
        reset_records_first: list[Record] | None = None,
    ) -> int:
        commit_number = position.commit_number

        def render_changes() -> Iterator[Record]:
            nonlocal commit_number
            yield from reset_records_first or []
            for change in changes:
                for pane in derive_panes(self._transform, change, firings):
                    commit_number = max(commit_number, pane.row["commit_number"])
                    yield self._render_pane(position, pane)

        def position_after() -> Position:
            return replace(
                position,
                commit_number=commit_number,
                run=self._find_run(commit_number),
                at=time.time_ns() // 1000,
            )

        clock = Clock()
        count = self._channel.send_transaction(render_changes(), position_after)
        self._position = position_after()
        clock.record_step("send")
        if telemetry.is_enabled():
            self._report_trace(clock, position.commit_number, count)
        return count

    def _report_trace(self, clock: Clock, commit_before: int, count: int) -> None:
        """Record a transaction in the trace of each arrival that it published.

        Args:
            commit_before: the number of the newest commit before the transaction.
            count: the number of records in the transaction.
        """
        asset = Asset(self._warehouse, self._transform)
        published = self._position
        if published is None:
            return
        spans = list[tuple[int, int]]()
        for commit in asset.state.read_commits_after(commit_before):
            is_published = commit.commit_number <= published.commit_number
            # Recomputed windows do not belong to new arrivals.
            if is_published and commit.recomputed_ranges is None:
                spans.append((commit.before.at.arrival, commit.furthest_position.arrival))
        if not spans:
            return
        span = clock.create_span(
            f"publish {asset.transform.name}",
            asset=asset.transform.name,
            topic=self.topic.name,
            records=count,
            run=published.run or "",
        )
        telemetry.report_work(asset.log.traced_arrivals(spans[0][0], spans[-1][1]), span)

    def _render_pane(self, position: Position, pane: Pane) -> Record:
        run = self._find_run(pane.row["commit_number"])
        return render_record(self._transform, position.epoch, pane, run, position.partitions)

    def _find_run(self, commit_number: int) -> str | None:
        """Return the ID of the run that made a commit. Return None if the state does not have the
        commit, because a drop that was killed removed the state but left the table."""
        if commit_number < 0:
            return None
        if commit_number not in self._runs:
            commits = self._state.read_commits_after(commit_number - 1)
            # A commit that the state does not have has no run.
            self._runs[commit_number] = None
            self._runs |= {commit.commit_number: commit.run for commit in commits}
        return self._runs[commit_number]

    def _load_runs(self, commit_number: int) -> bool:
        """Load the IDs of the runs that made the commits after `commit_number`.

        Return whether one of these runs rebuilt the table with another definition.
        """
        since = self._state.read_commits_after(commit_number)
        self._runs = {m.commit_number: m.run for m in since}
        return any(m.changes_definition for m in since)

    def _version_id(self, version: int) -> str:
        return self._warehouse.version_id(self._transform.published_table, version) or ""

    @property
    def _state(self) -> State:
        return State(self._warehouse, self._transform)

    def _check_columns(self, rows: pa.Table) -> None:
        """Raise an error if the columns of the table differ from those of this definition. Only a
        sink writer with the table's definition may publish the table.
        """
        columns = rows.column_names
        published = columns[columns.index("window_end") + 1 : columns.index("events")]
        differing = set(self._transform.result_columns) ^ set(published)
        if differing:
            raise DefinitionChangedError(
                f"The table of '{self._transform.name}' was written with another definition, which "
                f"differs in the column '{min(differing)}'. To publish it, use that other "
                "definition, or rebuild the table with this one."
            )

    def _firings_since(self, feed: pa.Table) -> FiringsByWindow:
        """Return the firings of the commits in a feed; none unless the mode is discarding."""
        is_update = pc.field("_change_type") == "update_postimage"
        numbers = feed.filter(is_update)["commit_number"].unique().to_pylist()
        table = self._transform.panes_table
        if self._transform.accumulation != "discarding" or not numbers:
            return {}
        if not self._warehouse.has_table(table):
            return {}
        bound = InRanges("commit_number", tuple((n, n + 1) for n in numbers), instants=False)
        return index_firings(self._transform, in_python(self._warehouse.load_rows(table, bound)))


def open_topic(
    definition: Definition, warehouse: Warehouse, timeout: float | None = None
) -> TransactionalTopic:
    """Return the connection of an asset to its topic, not opened yet.

    Args:
        timeout: seconds within which the brokers must answer a request; some seconds by default.
    """
    database = f"{warehouse.location}/{warehouse.database}"
    return TransactionalTopic(topic_of(definition), definition.name, database, timeout)


def topic_of(definition: Definition) -> KafkaSink:
    """Return the topic to which an asset publishes."""
    if isinstance(definition.sink, KafkaSink):
        return definition.sink
    raise DefinitionError(
        f"'{definition.name}' has no topic to publish to: add `sink=KafkaSink(…)` to its "
        "definition."
    )


def is_current(position: Position, topic: Topic | None) -> bool:
    """Return whether a position belongs to this topic and its current number of partitions."""
    if topic is None:
        return False
    return (position.topic, position.partitions) == (topic.id, len(topic.offsets))


def has_version(warehouse: Warehouse, definition: Definition, position: Position) -> bool:
    """Return whether a published table has the version of a position, in the same history.

    If the transaction log has lost the entry of the version since its publication, this is unknown,
    and the result is False.
    """
    present = warehouse.version_id(definition.published_table, position.version) or ""
    return present == position.version_id


@dataclass(frozen=True)
class SinkStatus:
    """How far a topic is behind the published table of its asset.

    Args:
        topic: the name of the topic.
        version: the last version of the table whose changes the topic has; -1 if the topic has no
            changes, or if the table or the topic was recreated.
        behind: the number of versions that the topic lacks.
        since: the commit time of the first missing version that the transaction log still has, in
            microseconds; None if there is none.
        run: the ID of the newest published run, if known.
        at: the time of the last publication, in microseconds; None if nothing was published.
    """

    topic: str
    version: int
    behind: int
    since: int | None
    run: str | None
    at: int | None


def sink_status(
    warehouse: Warehouse, definition: Definition, timeout: float | None = None
) -> SinkStatus:
    """Return the publishing progress of an asset's topic.

    Args:
        timeout: as for `open_topic`.
    """
    name = topic_of(definition).name
    way = open_topic(definition, warehouse, timeout)
    position = way.read_position()
    topic = way.find_topic()
    head = warehouse.find_head(definition.published_table)
    if head is None:
        return SinkStatus(name, -1, 0, None, None, None)
    if position is not None and not (
        position.table == head.table_id
        and is_current(position, topic)
        and has_version(warehouse, definition, position)
    ):
        position = None
    version = -1 if position is None else position.version
    behind = head.version - version
    since = _commit_time(
        warehouse, definition.published_table, range(version + 1, head.version + 1)
    )
    run, committed_at = (None, None) if position is None else (position.run, position.at)
    return SinkStatus(name, version, behind, since, run, committed_at)


def _commit_time(warehouse: Warehouse, table: str, versions: range) -> int | None:
    """Return the commit time of the first version in `versions` that the transaction log still has,
    or None if it has none of them.
    """
    committed_at = partial(warehouse.committed_at, table)
    # Expired versions come before all others, so a binary search finds the first that is left.
    first = bisect_left(versions, True, key=lambda version: committed_at(version) is not None)
    if first < len(versions):
        return committed_at(versions[first])
    return None
