"""A snapshot of the progress of sources and assets.

`tidemark status`, the metrics, the live page, and Dagster's sensors and checks use it, so that each
figure has one definition. It reads the tables without the engine: this costs the engine nothing,
and works while the engine is down. A missing table has no rows. If an asset was dropped and created
again, older rows of the ledger and the results are ignored.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from tidemark.base.counts import format_count
from tidemark.base.settings import Settings
from tidemark.compute.affected.by_time import can_change
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source
from tidemark.store import ledger
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.conditions import (
    Condition,
    Equals,
    at_least,
    less_than,
    text_field,
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
from tidemark_streaming.snapshot.tables import Tables

_WHOLE = (text_field("mode") == "incremental") | ds.field("window_from").is_null()
"""Runs after which all windows are up to date. A run of a range leaves windows outside the range as
they are."""


@dataclass(frozen=True)
class SourceSnapshot:
    """How far a source has been ingested, and the numbers of its events.

    Instants are in microseconds, or None before the first arrival.

    Args:
        events: the events in the event log.
        arrived_at: the processing time of the newest arrival that is not a heartbeat.
        clock: the processing time of the newest arrival.
        silent_since: the time since which an ingest that follows the source has found no data; None
            if the newest arrival is not a heartbeat.
        schema_version: 1 at first, and incremented each time that the source gains columns.
        dead_letters: dead letters that have not been reprocessed; 0 for a derived source.
        undeclared: fields that the source does not declare, each with its newest arrival.
        lag_arrivals: for a derived source, the number of arrivals that it has not taken yet, by
            base. A chain also has an entry with the name of its asset. That entry counts the runs,
            such as corrections, that changed windows after the chain had read them. Runs that the
            chain has processed do not count.
        unjoined: for a derived source, the number of rows of its bases that take no part in it.
    """

    name: str
    arrivals: int
    events: int
    arrived_at: int | None
    clock: int | None
    silent_since: int | None
    watermark: int | None
    newest_event: int | None
    schema_version: int | None
    dead_letters: int
    undeclared: Mapping[str, int]
    lag_arrivals: Mapping[str, int]
    unjoined: int


@dataclass(frozen=True)
class AssetSnapshot:
    """How far an asset has processed its source, and the numbers of its rows and events.

    Args:
        as_of: the arrival through which it is up to date; -1 before the first run. Later arrivals
            without events count as processed if they change no window.
        watermark: the watermark after that arrival.
        windows: published rows.
        final: published rows that can't change any more.
        open: rows of open windows, published or not.
        late: the late events in its published table, once for each of their windows.
        too_late: the events in its late table, each of them once.
        behind, rows_waiting: arrivals that it has not processed yet, and their events.
        limited_by: the limit because of which the newest run left arrivals for the next run; None
            if it left none.
        unfollowed: for a roll-up that has not processed all runs of its base, the name of the base;
            otherwise None.
    """

    asset: str
    source: str
    as_of: int
    watermark: int | None
    windows: int
    final: int
    open: int
    late: int
    too_late: int
    behind: int
    rows_waiting: int
    limited_by: str | None
    unfollowed: str | None

    @property
    def waiting_text(self) -> str:
        """The waiting rows as a message, such as `5 rows waiting, limited by arrivals`."""
        limit = "" if self.limited_by is None else f", limited by {self.limited_by}"
        return f"{format_count(self.rows_waiting, 'row')} waiting{limit}"


class Snapshot:
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
        self.tables = Tables.of_database(settings, pause_factor)
        self._timelines = dict[str, Timeline]()
        assets = {t.name: self._timeline_of(t.source.name) for t in transforms}
        self._ledger = Ledger(assets, recordings)

    def read_source(self, source: Source) -> SourceSnapshot:
        """Return the progress of a source."""
        timeline = self.arrivals_of(source.name)
        dead = source.dead_letters_table
        undeclared = timeline.undeclared.items()
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
            undeclared={
                name: last for name, last in undeclared if name not in source.record_fields
            },
            lag_arrivals=self._lag_of_bases(source, timeline) if derived else {},
            unjoined=letters if derived else 0,
        )

    def read_asset(self, transform: Definition) -> AssetSnapshot:
        """Return the progress of an asset."""
        name = transform.name
        tables = self.tables
        timeline = self.arrivals_of(transform.source.name)
        runs = self.runs_of(transform)
        published = windows.count_published(tables, transform)
        as_of = runs.as_of
        watermark = runs.watermark
        newest = timeline.count - 1
        if as_of < newest and self._can_wait(transform, timeline, as_of, watermark):
            as_of = newest
            watermark = timeline.watermark
        behind = max(0, newest - as_of)
        return AssetSnapshot(
            asset=name,
            source=transform.source.name,
            as_of=as_of,
            watermark=watermark,
            windows=published.rows,
            final=published.final,
            open=windows.count_open(tables, transform, watermark).total(),
            late=published.late,
            too_late=windows.count_too_late(tables, transform),
            behind=behind,
            rows_waiting=timeline.count_events(as_of, newest),
            limited_by=runs.limited_by if behind else None,
            unfollowed=self._unfollowed_base(transform),
        )

    def can_wait(self, transform: Definition) -> bool:
        """Return whether an asset is up to date except for arrivals that need no run yet.

        An arrival needs no run yet if it has no events, and if the watermark and the clock after
        it change no window (`affected.by_time`).
        """
        columns = ["commit_number", "through_arrival", "watermark"]
        rows = self.tables.read(ledger.TABLE, columns, _WHOLE, self.current_rows(transform.name))
        if rows is None or not rows.num_rows:
            return False
        last = to_dicts(rows.sort_by([("commit_number", "descending")]).slice(0, 1))[0]
        timeline = self.arrivals_of(transform.source.name)
        return self._can_wait(transform, timeline, last["through_arrival"], last["watermark"])

    def _can_wait(
        self, transform: Definition, timeline: Timeline, as_of: int, watermark: int | None
    ) -> bool:
        newest = timeline.count - 1
        if not 0 <= as_of <= newest or timeline.count_events(as_of, newest):
            return False

        base = base_transform(transform)
        before = TimelinePosition(as_of, watermark, timeline.arrived_at[as_of])
        after = TimelinePosition(newest, timeline.watermark, timeline.clock)
        return not can_change(self.tables.read_rows, base, self.table_id(base.name), before, after)

    def arrivals_of(self, source: str) -> Timeline:
        """Return the arrivals of a source."""
        timeline = self._timeline_of(source)
        timeline.read_new_rows(self.tables)
        return timeline

    def runs_of(self, transform: Definition) -> Runs:
        """Return the runs of an asset since it was created."""
        self._ledger.read_new_rows(self.tables)
        name = transform.name
        tables = [transform.state_table, transform.published_table, ledger.TABLE]
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

    def assets_behind(self, assets: Iterable[str], newest: int) -> list[str]:
        """Return the assets that are not up to date through the arrival `newest`."""
        names = list(assets)
        # File statistics skip older runs, however long the ledger is.
        commits = at_least("through_arrival", newest)
        processed = self._newest_of(commits, _is_of_assets(names) & _WHOLE)
        # A run that replaces all windows, such as a rollback, may set the asset back to an earlier
        # arrival. Then the runs before it do not count.
        elsewhere = (text_field("mode") != "incremental") & ds.field("window_from").is_null()
        limited = self._newest_of(
            less_than("through_arrival", newest), _is_of_assets(names) & elsewhere
        )
        table_ids = {asset: self.table_id(asset) or "" for asset in names}
        return [
            a for a, table_id in table_ids.items() if processed[a, table_id] <= limited[a, table_id]
        ]

    def _newest_of(
        self, bound: Condition, where: ds.Expression
    ) -> defaultdict[tuple[str, str], int]:
        """Return the number of the newest run by asset and table id; -1 if there is none.

        Only runs whose row in the ledger meets both conditions count.
        """
        rows = self.tables.read(
            ledger.TABLE, ["asset", "table_id", "commit_number"], where, [bound]
        )
        newest = defaultdict[tuple[str, str], int](lambda: -1)
        for row in [] if rows is None else rows.to_pylist():
            asset_id = row["asset"], row["table_id"]
            newest[asset_id] = max(newest[asset_id], row["commit_number"])
        return newest

    def unfollowed_rollups(self, bases: Mapping[str, str]) -> dict[str, int]:
        """Return the roll-ups that have not processed every run of their base.

        Each is returned with the number of the base's newest run.

        Args:
            bases: the bases of the roll-ups to check, by roll-up.
        """
        unfollowed = dict[str, int]()
        runs = self.tables.open_table(ledger.TABLE) if bases else None
        if runs is None:
            return unfollowed
        for name, base in bases.items():
            table_id = self.table_id(base)
            newest = _newest_recorded_run(runs, f"{base}/{table_id}")
            # The identity of a roll-up depends on its base and on its own table.
            table = self.tables.open_table(name)
            if table is None:
                followed = -1
            else:
                followed = _newest_recorded_run(runs, f"{name}/{table_id}{_own_table_id(table)}")
            if followed < newest:
                unfollowed[name] = newest
        return unfollowed

    def count_runs(self, assets: Iterable[str]) -> Counter[str]:
        """Return the number of runs of each asset in the ledger.

        Runs from before the asset was dropped and recreated count, too.
        """
        table = self.tables.read(ledger.TABLE, ["asset"], _is_of_assets(assets))
        return Counter([] if table is None else table["asset"].to_pylist())

    def read_runs(self, ended_from: int = 0) -> list[dict[str, Any]]:
        """Return the ledger's rows of runs that ended at `ended_from` or later, sorted by asset and
        run.

        Runs from before a drop are left out. Instants are in microseconds.
        """
        table = self.tables.read(
            ledger.TABLE, bounds=[at_least("ended_at", ended_from, instants=True)]
        )
        rows: list[dict[str, Any]] = [] if table is None else to_dicts(table)
        table_ids = {asset: self.table_id(asset) for asset in {r["asset"] for r in rows}}
        present = (r for r in rows if r["table_id"] == table_ids[r["asset"]])
        return sorted(present, key=lambda r: (r["asset"], r["commit_number"]))

    def runs_after(self, asset: str, commit_number: int) -> list[dict[str, Any]]:
        """Return the ledger's rows of an asset's runs after the number `commit_number`, in order.

        Instants are in microseconds.
        """
        bounds = [*self.current_rows(asset), at_least("commit_number", commit_number + 1)]
        table = self.tables.read(ledger.TABLE, bounds=bounds)
        if table is None:
            return []
        return to_dicts(table.sort_by("commit_number"))

    def runs_before(self, asset: str, commit_number: int) -> list[dict[str, Any]]:
        """Return the ledger's rows of an asset's runs before a commit, in order. The rows have only
        the columns `commit_number`, `watermark`, `window_from` and `reported`.
        """
        columns = ["commit_number", "watermark", "window_from", "reported"]
        bounds = [*self.current_rows(asset), less_than("commit_number", commit_number)]
        table = self.tables.read(ledger.TABLE, columns, bounds=bounds)
        if table is None:
            return []
        return to_dicts(table.sort_by("commit_number"))

    def last_run(self, asset: str) -> dict[str, Any] | None:
        """Return the ledger's newest row of an asset, with instants as datetimes; None if the asset
        has not run."""
        numbers = self.tables.read(ledger.TABLE, ["commit_number"], bounds=self.current_rows(asset))
        if numbers is None or not numbers.num_rows:
            return None
        newest = [
            *self.current_rows(asset),
            at_least("commit_number", max(numbers["commit_number"].to_pylist())),
        ]
        rows = self.tables.read(ledger.TABLE, bounds=newest)
        if rows is None:
            return None
        return next(iter(rows.to_pylist()), None)

    def current_rows(self, asset: str) -> list[Equals]:
        """Return conditions that select an asset's rows in the ledger or in the table of check
        results. Rows from before the asset was dropped and recreated do not meet them.
        """
        return [Equals("asset", asset), Equals("table_id", self.table_id(asset) or "")]

    def table_id(self, asset: str) -> str | None:
        """Return the id of an asset's state table, as in the ledger.

        Return None if the asset has not run since it was created.
        """
        state = self.tables.table_id(f"{asset}_state")
        if state is not None:
            return state
        # A roll-up has no state table. Its identity depends on its base, on its own table, and on
        # the generation of its windows.
        published = self.tables.open_table(asset)
        if published is None:
            return None
        suffix = _own_table_id(published)
        table = self.tables.read(
            ledger.TABLE, ["table_id", "started_at"], bounds=[Equals("asset", asset)]
        )
        rows = [] if table is None else table.to_pylist()
        asset_runs = [r for r in rows if r["table_id"].endswith(suffix)]
        newest = max(asset_runs, key=lambda r: r["started_at"], default=None)
        if newest is None:
            return None
        return newest["table_id"]

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

    def _unfollowed_base(self, transform: Definition) -> str | None:
        """Return the base of a roll-up if the roll-up has not processed all runs of the base.

        Return None otherwise, and for an asset that is not a roll-up.
        """
        name = transform.name
        base = transform.rolled_up_name
        if base is None:
            return None
        tables = [transform.state_table, transform.published_table, ledger.TABLE]
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


def _is_of_assets(assets: Iterable[str]) -> ds.Expression:
    """Return the condition that only rows of the given assets meet."""
    return text_field("asset").isin(pa.array(assets, pa.string()))


def _own_table_id(table: DeltaTable) -> str:
    """Return the end of a roll-up's table id, `+TABLE`, which identifies its published table. The
    beginning identifies the state of its base."""
    metadata = table.metadata()
    return f"+{rollup_generation.table_identity(str(metadata.id), metadata.configuration)}"


def _newest_recorded_run(runs: DeltaTable, app: str) -> int:
    """Return the number of the newest run in the ledger; -1 before the first.

    Args:
        app: the asset and the table id of the run, as in the ledger's transactions.
    """
    commit_number = runs.transaction_version(app)
    if commit_number is None:
        return -1
    return commit_number


class NewRuns:
    """Returns the runs of an asset that are new since the last call of `take_runs`.

    The number of a run is unique only within one table id: after a drop, numbers start at 0 again.
    """

    def __init__(self, snapshot: Snapshot, asset: str) -> None:
        self._snapshot = snapshot
        self._asset = asset
        self._last: tuple[str | None, int] = None, -1

    def take_runs(self) -> list[dict[str, Any]]:
        """Return the ledger's rows of the runs since the last call, in order.

        The first call returns all runs, and so does one after the asset was recreated.
        """
        table_id = self._snapshot.table_id(self._asset)
        (before, commit_number) = self._last
        rows = self._snapshot.runs_after(self._asset, commit_number if table_id == before else -1)
        # The asset may be recreated between the two reads.
        asset_runs = [row for row in rows if row["table_id"] == table_id]
        if asset_runs:
            self._last = table_id, asset_runs[-1]["commit_number"]
        return asset_runs
