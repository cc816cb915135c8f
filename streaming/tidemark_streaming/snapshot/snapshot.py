"""A snapshot of the progress of sources and assets.

`tidemark status`, the metrics, the live page, and Dagster's sensors and checks use it, so that each
figure has one definition. It reads the tables without the engine: this costs the engine nothing,
and works while the engine is down. A missing table has no rows. If an asset was dropped and created
again, older rows of the ledger and the results are ignored.
"""

from collections.abc import Collection, Container, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.settings import Settings
from tidemark.compute.affected.by_time import can_change
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source
from tidemark.store import ledger
from tidemark.store.commits.conditions import (
    at_least,
    less_than,
    window_starts_in,
)
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.log_columns import schema_version
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import to_dicts, to_micros
from tidemark_streaming.snapshot import windows
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.history import Ledger, Place, Runs, Timeline
from tidemark_streaming.snapshot.ledger_reader import HAS_ALL_WINDOWS, LedgerReader
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.tables import Tables


class Snapshot(LedgerReader):
    """Reads the tables of one database. Later calls read only changes.

    Args:
        transforms: the assets with which `read_asset` and `runs_of` can be called.
        recordings: the sources that are recordings, which have no latencies.
        pause_factor: see `Tables`.
    """

    def __init__(
        self,
        settings: Settings,
        transforms: Iterable[Definition] = (),
        recordings: Container[str] = (),
        pause_factor: float = 0,
    ) -> None:
        super().__init__(Tables.of_database(settings, pause_factor))
        self._timelines = dict[str, Timeline]()
        assets = {t.name: self._timeline_of(t.source.name) for t in transforms}
        self._ledger = Ledger(assets, recordings)

    def read_source(self, source: Source) -> SourceSnapshot:
        """Return the progress of a source."""
        timeline = self.arrivals_of(source.name)
        dead = source.dead_letters_table
        undeclared = dict[str, int]()
        for name, last_arrival in timeline.undeclared.items():
            # The source may have declared the field since then.
            if name not in source.record_fields:
                undeclared[name] = last_arrival
        derived = isinstance(source, DerivedSource)
        letters = self.tables.read_if_changed(
            (source.name, "dead letters"),
            [dead],
            lambda: self._dead_letters(dead, timeline),
            dependency=timeline.count,
        )
        version: int | None = None
        if timeline.count:
            version = self.tables.read_if_changed(
                (source.name, "schema"),
                [source.log_table],
                lambda: self._schema_version(source.log_table),
            )
        return SourceSnapshot(
            name=source.name,
            arrivals=timeline.count,
            events=timeline.events,
            arrived_at=timeline.heard_at,
            clock=timeline.clock,
            silent_since=timeline.silent_since,
            watermark=timeline.watermark,
            newest_event=timeline.newest_event,
            schema_version=version,
            dead_letters=0 if derived else letters,
            undeclared=undeclared,
            lag_arrivals=self._lag_of_bases(source, timeline) if derived else {},
            unjoined=letters if derived else 0,
        )

    def read_asset(self, definition: Definition) -> AssetSnapshot:
        """Return the progress of an asset."""
        name = definition.name
        tables = self.tables
        timeline = self.arrivals_of(definition.source.name)
        runs = self.runs_of(definition)
        published = windows.count_published(tables, definition)
        as_of = runs.as_of
        watermark = runs.watermark
        newest = timeline.count - 1
        if as_of < newest and self._can_wait(definition, timeline, as_of, watermark):
            as_of = newest
            watermark = timeline.watermark
        behind = max(0, newest - as_of)
        return AssetSnapshot(
            asset=name,
            source=definition.source.name,
            as_of=as_of,
            watermark=watermark,
            windows=published.rows,
            final=published.final,
            open=windows.count_open(tables, definition, watermark).total(),
            late=published.late,
            too_late=windows.count_too_late(tables, definition),
            behind=behind,
            rows_waiting=timeline.count_events(as_of, newest),
            limited_by=runs.limited_by if behind else None,
            unfollowed=self._unfollowed_base(definition),
        )

    def can_wait(self, definition: Definition) -> bool:
        """Return whether an asset is up to date except for arrivals that need no run yet.

        An arrival needs no run yet if it has no events, and if the watermark and the clock after
        it change no window (`affected.by_time`).
        """
        columns = ["commit_number", "through_arrival", "watermark"]
        rows = self.tables.read(
            ledger.TABLE, columns, HAS_ALL_WINDOWS, self.current_rows(definition.name)
        )
        if rows is None or not rows.num_rows:
            return False
        last = to_dicts(rows.sort_by([("commit_number", "descending")]).slice(0, 1))[0]
        timeline = self.arrivals_of(definition.source.name)
        return self._can_wait(definition, timeline, last["through_arrival"], last["watermark"])

    def _can_wait(
        self, definition: Definition, timeline: Timeline, as_of: int, watermark: int | None
    ) -> bool:
        newest = timeline.count - 1
        if not 0 <= as_of <= newest or timeline.count_events(as_of, newest):
            return False

        base = base_transform(definition)
        processed = TimelinePosition(as_of, watermark, timeline.arrived_at[as_of])
        reached = TimelinePosition(newest, timeline.watermark, timeline.clock)
        table_id = self.table_id(base.name)
        return not can_change(self.tables.read_rows, base, table_id, processed, reached)

    def arrivals_of(self, source: str) -> Timeline:
        """Return the arrivals of a source."""
        timeline = self._timeline_of(source)
        timeline.read_new_rows(self.tables)
        return timeline

    def runs_of(self, definition: Definition) -> Runs:
        """Return the runs of an asset since it was created."""
        self._ledger.read_new_rows(self.tables)
        name = definition.name
        tables = [definition.state_table, definition.published_table, ledger.TABLE]
        table_id = self.tables.read_if_changed(
            (name, "table_id"), tables, lambda: self.table_id(name)
        )
        return self._ledger.runs_of(name, table_id)

    def read_timeline(self, source: str) -> list[Arrival]:
        """Return all arrivals of a source, in order."""
        table = self.tables.read(f"{source}_timeline")
        if table is None:
            return []
        return read_arrivals(table)

    def newest_arrival(self, source: str) -> int:
        """Return the number of a source's newest arrival; -1 before the first."""
        table = self.tables.read(f"{source}_timeline", ["arrival"])
        if table is None:
            return -1
        return max(table["arrival"].to_pylist(), default=-1)

    def newest_event(self, source: str) -> int | None:
        """Return the newest event time of a source; None before the first event."""
        table = self.tables.read(f"{source}_timeline", ["max_event_time"])
        event_times = [] if table is None else to_micros(table["max_event_time"].drop_null())
        return max(event_times, default=None)

    def changed_windows(self, asset: str, commits: Collection[int]) -> list[int]:
        """Return the starts of the windows that one of the given commits published last.

        Starts are in microseconds.
        """
        is_changed = ds.field("commit_number").isin(sorted(commits))
        table = self.tables.read(
            asset, ["window_start"], is_changed, [at_least("commit_number", min(commits))]
        )
        if table is None:
            return []
        return to_micros(table["window_start"].unique())

    def read_windows(
        self, table: str, columns: list[str], start: int, end: int
    ) -> tuple[list[int], pa.Table] | None:
        """Return the rows of the windows with a start in [start, end), and before them a list with
        the start of each row's window, in microseconds.

        Return None if the table is missing.
        """
        bounds = [window_starts_in(((start, end),))]
        rows = self.tables.read(table, ["window_start", *columns], bounds=bounds)
        if rows is None:
            return None
        return (to_micros(rows["window_start"]), rows)

    def last_published_rows(self, asset: str, commit_number: int) -> list[dict[str, Any]]:
        """Return the rows that a commit of the asset published, newest window first."""
        table = self.tables.read(
            asset,
            where=ds.field("commit_number") == commit_number,
            bounds=[at_least("commit_number", commit_number)],
        )
        rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
        return sorted(rows, key=lambda r: r["window_start"], reverse=True)

    def _timeline_of(self, source: str) -> Timeline:
        return self._timelines.setdefault(source, Timeline(source))

    def _unfollowed_base(self, definition: Definition) -> str | None:
        """Return the base of a roll-up if the roll-up has not processed all runs of the base.

        Return None otherwise, and for an asset that is not a roll-up.
        """
        name = definition.name
        base = definition.rolled_up_name
        if base is None:
            return None
        tables = [definition.state_table, definition.published_table, ledger.TABLE]
        is_unfollowed = self.tables.read_if_changed(
            (name, "unfollowed"), tables, lambda: self.unfollowed_rollups({name: base})
        )
        return base if is_unfollowed else None

    def _schema_version(self, log: str) -> int | None:
        table = self.tables.open_table(log)
        if table is None:
            return None
        properties = {n: v or "" for n, v in table.metadata().configuration.items()}
        return schema_version(properties, [field.name for field in table.schema().fields])

    def _lag_of_bases(self, source: DerivedSource, timeline: Timeline) -> dict[str, int]:
        """Return `SourceSnapshot.lag_arrivals` of a derived source."""
        newest = timeline.newest_position
        step = None if newest is None else Step.of_position(newest)
        taken = {} if step is None else step.taken_arrivals
        counts = {base.name: self.arrivals_of(base.name).count for base in source.base_sources}
        lag = {base: max(n - 1 - taken.get(base, -1), 0) for base, n in counts.items()}
        chain = source.derivation
        if isinstance(chain, Chain) and step is not None:
            lag[chain.asset.name] = self.tables.read_if_changed(
                (source.name, "changed windows"),
                [*chain.asset.own_tables, ledger.TABLE],
                lambda: self._count_changes(source, chain, step),
                dependency=timeline.count,
            )
        return lag

    def _count_changes(self, source: DerivedSource, chain: Chain, step: Step) -> int:
        """Return the number of commits that changed windows after a chain had read them.

        The commits are those of the chain's asset. Return 0 if the chain has read no window yet.

        Args:
            source: the chain, as a source.
            chain: the derivation of the source.
            step: the newest step of the chain.
        """
        if step.results is None:
            return 0
        results = AssetResults(source, chain, self.tables)
        return results.count_changes(step.results, results.watermark_after(step.taken_arrival))

    def _dead_letters(self, table: str, timeline: Timeline) -> int:
        """Return the number of dead letters that have not been reprocessed."""
        # A failed writer may have left dead letters of arrivals that the timeline does not have.
        bounds = [less_than("arrival", timeline.count)]
        rows = self.tables.read(table, ["arrival", "position"], bounds=bounds)
        if rows is None:
            return 0
        places = zip(rows["arrival"].to_pylist(), rows["position"].to_pylist(), strict=True)
        return len(set[Place](places) - timeline.reprocessed)
