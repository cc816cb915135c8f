"""Find the damage to the tables of a source: its event log, its dead letters, its timeline."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from tidemark.base.counts import format_count
from tidemark.define import tables as tables_of
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tables import ERASURES, Role
from tidemark.store import operations
from tidemark.store.commits.conditions import at_least
from tidemark.store.committers import file_list, statistics
from tidemark.store.integrity.checked_tables import CheckedTables
from tidemark.store.integrity.damage import Damage
from tidemark.store.integrity.vouching import erasure_app, ingest_app, replaced_app, version_app


@dataclass(frozen=True)
class SourceCheck:
    """Finds damage to the tables of one source."""

    tables: CheckedTables
    source: Source

    def find_damage(self) -> Iterator[Damage]:
        yield from self._find_lost_arrivals()
        name = self.source.timeline_table
        timeline = self.tables.open_table(name)
        if timeline is not None:
            fault = _find_sequence_fault(timeline)
            if fault is not None:
                # The rows of the other tables can't be compared with such a timeline.
                yield Damage(name, f"{fault} (version {self.tables.opened_version(name)})")
                return
        for table in (self.source.log_table, self.source.dead_letters_table):
            self.tables.open_table(table)
            if timeline is not None:
                yield from self._find_lost_data(timeline, table)

    def _find_lost_data(self, timeline: DeltaTable, table: str) -> Iterator[Damage]:
        """Yield the damage if a table lacks commits or rows that the timeline records."""
        app = ingest_app(self.source)
        name = self.source.timeline_table
        lost_commits = list(self.tables.find_lost_commits(timeline, name, app, table))
        yield from lost_commits
        is_vouched_for = timeline.transaction_version(version_app(app, table)) is not None
        if is_vouched_for and not lost_commits and table not in self.tables.broken:
            yield from self._find_lost_rows(timeline, table)

    def _find_lost_rows(self, timeline: DeltaTable, table: str) -> Iterator[Damage]:
        if self._is_adding_rows():
            # The timeline does not count the added rows yet. The next erasure finishes the
            # interrupted one.
            return
        expected_rows = self._expected_rows(timeline, table)
        expected = sum(expected_rows.values())
        opened = self.tables.open_table(table)
        actual = 0
        if opened is not None:
            actual = _count_rows_through(opened, max(expected_rows, default=-1))
        if actual != expected:
            version = self.tables.opened_version(table)
            yield Damage(
                table,
                f"has {format_count(actual, 'row')} (version {version}), but the table "
                f"'{self.source.timeline_table}' records {expected:,}",
            )

    def _expected_rows(self, timeline: DeltaTable, table: str) -> dict[int, int]:
        """Return the number of rows of each arrival in the event log or the dead letters."""
        column = "rows" if table == self.source.log_table else "dead_letters"
        recorded = file_list.load_rows(timeline, (), ["arrival", column])
        arrivals = recorded["arrival"].to_pylist()
        rows = dict[int, int]()
        for arrival, count in zip(arrivals, recorded[column].to_pylist(), strict=True):
            rows[arrival] = count or 0
        # An erasure deletes the dead letters of derived sources. For other sources, it only removes
        # their content.
        if column == "rows" or isinstance(self.source, DerivedSource):
            for arrival, erased in self._count_erased_rows(table).items():
                rows[arrival] = rows.get(arrival, 0) - erased
        return rows

    def _count_erased_rows(self, table: str) -> Mapping[int, int]:
        """Return the number of rows of each arrival that were erased from one of the tables."""
        column = "events" if table == self.source.log_table else "dead_letters"
        counts_by_erasure = dict[str, list[dict[str, int]]]()
        for record in self._read_erasures(column):
            counts_by_erasure[record["erasure"]] = record[column]
        erased_rows = Counter[int]()
        for erasure, counts in counts_by_erasure.items():
            # An erasure that has not committed to the table yet does not count, nor does one after
            # which all rows were replaced.
            if self.tables.transaction_version(table, erasure_app(erasure)) == 0:
                for count in counts:
                    erased_rows[count["arrival"]] += count["events"]
        return erased_rows

    def _is_adding_rows(self) -> bool:
        """Return whether an unfinished erasure adds rows to the source."""
        records = self._read_erasures("added")
        records_by_erasure = Counter(record["erasure"] for record in records if record["added"])
        # An erasure gets its second record when it has ended.
        return 1 in records_by_erasure.values()

    def _read_erasures(self, column: str) -> list[dict[str, Any]]:
        """Return the records of the source's erasures, with one of their columns."""
        opened = self.tables.open_table(ERASURES)
        if opened is None:
            return []
        records = file_list.load_rows(opened, (), ["erasure", "source", column]).to_pylist()
        return [record for record in records if record["source"] == self.source.name]

    def _find_lost_arrivals(self) -> Iterator[Damage]:
        """Yield the damage for each node that has read rows of arrivals that the timeline lacks.

        The next ingest would delete these rows, which may be the only copy: files whose arrival was
        recorded may have been deleted. If the rows do not exist either, an ingest has nothing to
        lose, and the nodes that have read them are stale.
        """
        name = self.source.timeline_table
        timeline = self.tables.open_table(name)
        if name in self.tables.broken or self._is_changing():
            return
        newest = None
        if timeline is not None:
            newest = file_list.max_value(timeline, "arrival")
        newest_arrival = -1 if newest is None else newest
        for table in (self.source.log_table, self.source.dead_letters_table):
            leftover = self._find_first_arrival(table, newest_arrival + 1)
            if leftover is not None:
                yield from self._find_lost_reads(table, leftover, newest_arrival)

    def _find_lost_reads(self, table: str, leftover: int, newest: int) -> Iterator[Damage]:
        """Yield the damage for each node that has read an arrival after the newest one.

        Args:
            table: the table that still has rows of the arrival.
            leftover: the number of the arrival.
            newest: the newest arrival of the timeline.
        """
        timeline = self.source.timeline_table
        replaced = self.tables.transaction_version(table, replaced_app(self.source))
        for reader, last_read in self.tables.find_readers(self.source):
            is_replaced = replaced is not None and last_read <= replaced
            if last_read < leftover or is_replaced:
                continue
            node = reader.owner.partition(" ")[2]
            version = self.tables.opened_version(timeline)
            yield Damage(
                timeline,
                f"ends with arrival {newest} (version {version}), but '{table}' has rows of "
                f"arrival {leftover}, which '{node}' has read: the timeline's newest commits were "
                "lost",
                node if reader.role is Role.STATE else None,
            )

    def _find_first_arrival(self, table: str, start: int) -> int | None:
        """Return the first arrival from a number on that a table has rows of; None without any."""
        opened = self.tables.open_table(table)
        if opened is None:
            return None
        rows = file_list.load_rows(opened, (at_least("arrival", start),), ["arrival"])
        return min(rows["arrival"].to_pylist(), default=None)

    def _is_changing(self) -> bool:
        """Return whether an unfinished operation replaces or deletes the source's tables."""
        opened = self.tables.open_table(operations.TABLE)
        if opened is None:
            return False
        owner = tables_of.source_owner(self.source.name)
        for operation in operations.select_unfinished(file_list.load_rows(opened, ())):
            if operation.owner == owner and operation.kind is not operations.Kind.ERASE:
                return True
        return False


def _find_sequence_fault(timeline: DeltaTable) -> str | None:
    """Return the problem with the first arrival that does not belong behind the one before it.

    Such an arrival is missing, exists more than once, or follows an arrival that has been replaced.
    """
    columns = ["arrival", "arrival_id", "follows"]
    rows = file_list.load_rows(timeline, (), columns).sort_by("arrival").to_pylist()
    previous_id = ""
    for expected, row in enumerate(rows):
        arrival = row["arrival"]
        if arrival > expected:
            return f"lacks arrival {expected}, but has arrival {rows[-1]['arrival']}"
        if arrival < expected:
            return f"has arrival {arrival} more than once"
        if row["follows"] != previous_id:
            return (
                f"has an arrival {arrival} that followed another arrival {arrival - 1} than the "
                "table has: one of its commits was replaced"
            )
        previous_id = row["arrival_id"]
    return None


def _count_rows_through(opened: DeltaTable, last_arrival: int) -> int:
    """Return the number of rows of the arrivals up to `last_arrival`.

    Rows of later arrivals belong to a writer that died or is still at work.
    """
    total = sum(file["num_records"] for file in statistics.list_files(opened))
    later_rows = file_list.load_rows(opened, (at_least("arrival", last_arrival + 1),), ["arrival"])
    return total - later_rows.num_rows
