"""Read how far the asset of a chain has published its windows, without the engine.

A chain takes an arrival after its asset has published the results of that arrival. Later, a run
without new arrivals, such as a backfill, may change windows that the chain has already read. What
happens then depends on the chain:

| `rows` of the chain | effect |
| --- | --- |
| `final` | the chain refuses to continue, because it reads each window only once |
| `changes` | the chain takes the run's commit as a step, as it takes arrivals |
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.instants import INFINITY, format_instant
from tidemark.compute.affected.by_commit import can_repeat_rows, find_changes
from tidemark.compute.affected.by_time import can_change
from tidemark.compute.rollups import find_coverage_after
from tidemark.define.derived.chain import FIRST, LAST, Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import MARKER
from tidemark.define.rollup import RollUp, base_transform
from tidemark.store import ledger
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import at_least, number_is, text_field
from tidemark.store.commits.coverage import TimelinePosition
from tidemark.store.commits.kinds import from_json
from tidemark.store.event_log.arrival import Arrival, read_arrivals
from tidemark.store.event_log.steps import TakenResults
from tidemark.store.lineage import Stale, StaleError, rebuild_advice
from tidemark.store.rows import to_micros
from tidemark_streaming.snapshot.tables import Tables, arrow_instant


@dataclass(frozen=True)
class AssetResults:
    """The published results of a chain's asset. They are cached when they are first read.

    Args:
        source: the chain, as a source.
        chain: how the chain is computed.
    """

    source: DerivedSource
    chain: Chain
    tables: Tables

    @property
    def name(self) -> str:
        """The name of the chain."""
        return self.source.name

    @cached_property
    def table_id(self) -> str | None:
        """The table id of the asset, as in the ledger; None before its first run."""
        state = self.tables.table_id(self.chain.asset.state_table)
        if state is None or not isinstance(self.chain.asset, RollUp):
            return state
        table = self.tables.open_table(self.chain.asset.published_table)
        if table is None:
            return None
        metadata = table.metadata()
        identity = rollup_generation.table_identity(str(metadata.id), metadata.configuration)
        return f"{state}+{identity}"

    @cached_property
    def newest_commit(self) -> StateCommit | None:
        """The newest commit that the asset has published; None before the first such commit."""
        runs = self.tables.open_table(ledger.TABLE)
        if runs is None or self.table_id is None:
            return None
        number = runs.transaction_version(f"{self.chain.asset.name}/{self.table_id}")
        if number is None:
            return None
        return next(c for c in self._commits_from(number) if c.commit_number == number)

    def published_through(self, timeline: Sequence[Arrival]) -> int:
        """Return the number of the newest arrival that the asset has published; -1 if there is
        none.

        Later arrivals count as published if they have no events and change no window.

        Args:
            timeline: the newest arrivals of the asset's source.
        """
        if self.newest_commit is None:
            return -1
        position = find_coverage_after(self.chain.asset, self.newest_commit).at
        later = [a for a in timeline if a.arrival > position.arrival]
        if not later or any(a.rows for a in later):
            return position.arrival
        newest = TimelinePosition(later[-1].arrival, later[-1].after, later[-1].arrived_at)
        base = base_transform(self.chain.asset)
        state = self.tables.table_id(base.state_table)
        changes = can_change(self.tables.read_rows, base, state, position, newest)
        return position.arrival if changes else newest.arrival

    def results_after(
        self, watermark: int | None, changes: Sequence[StateCommit] = ()
    ) -> TakenResults | None:
        """Return the results that a chain has read after it has taken a step.

        Return None if the asset has not published any results.

        Args:
            watermark: the watermark of the asset's source after the step.
            changes: the commits that the chain takes in later steps, in order.
        """
        if self.table_id is None or self.newest_commit is None:
            return None
        bound = self._latest_read_end(watermark)
        released = 0 if bound is None else sum(end <= bound for end in self._released_ends)
        commit = self.newest_commit.commit_number
        run = self.newest_commit.run
        if changes:
            # The commit before the first of these changes, which is the newest one read so far.
            commit = changes[0].commit_number - 1
            run = self._commits_from(commit)[0].run
        return TakenResults(self.table_id, commit, run, released)

    def watermark_after(self, arrival: int) -> int | None:
        """Return the watermark of the asset's source after an arrival; None for minus infinity."""
        timeline = self.chain.asset.source.timeline_table
        rows = self.tables.read(timeline, bounds=[number_is("arrival", arrival)])
        arrivals = [] if rows is None else read_arrivals(rows)
        return arrivals[0].after if arrivals else None

    def arrival_of(self, change: StateCommit) -> int:
        """Return the number of the newest arrival that the asset had processed after a commit."""
        return find_coverage_after(self.chain.asset, change).at.arrival

    def changes_since(
        self, taken_results: TakenResults, watermark: int | None
    ) -> list[StateCommit]:
        """Return the commits that changed windows after the chain had read them.

        Each of these commits becomes a step of the chain.

        Args:
            taken_results: the results that the chain had read at its last step.
            watermark: the watermark of the asset's source after the last step.

        Raises:
            StaleError: the asset was dropped, or windows that the chain has taken have changed in a
                way that it can't follow.
        """
        asset = self.chain.asset
        if self.table_id != taken_results.table_id:
            raise self._stale_error(
                f"'{asset.name}' was dropped after '{self.name}' had read its windows"
            )
        commits, changes = self._find_changes(taken_results, watermark)
        for change in changes:
            if self.chain.rows != "changes" or not can_repeat_rows(commits, change):
                raise self.change_error(change)
        current = self.results_after(watermark)
        if current is not None and current.released != taken_results.released:
            raise self._stale_error(
                f"after '{self.name}' had read windows of '{asset.name}', some of them left "
                "quarantine or were replaced"
            )
        if commits and not changes and self.has_moved_windows(watermark):
            raise self._stale_error(
                f"a recomputation of '{asset.name}' published windows that were in quarantine "
                f"when '{self.name}' read the windows, or the reverse"
            )
        return changes

    def count_changes(self, taken_results: TakenResults, watermark: int | None) -> int:
        """Return the number of commits that changed windows after the chain had read them.

        Return 0 if the asset was dropped. Unlike `changes_since`, raise no error for a change that
        the chain can't follow.
        """
        if self.table_id == taken_results.table_id:
            return len(self._find_changes(taken_results, watermark)[1])
        return 0

    def _find_changes(
        self, taken_results: TakenResults, watermark: int | None
    ) -> tuple[list[StateCommit], list[StateCommit]]:
        """Return all published commits of the asset, and the commits that changed windows after the
        chain had read them.

        If no commit since `taken_results` recomputed windows, earlier commits are not read, and
        both lists are empty.
        """
        # Usually no commit recomputes windows. Then the earlier commits need not be read.
        replaces = any(
            c.recomputed_ranges is not None for c in self._commits_from(taken_results.commit + 1)
        )
        commits = self._commits_from(0) if replaces else []
        newest = -1 if self.newest_commit is None else self.newest_commit.commit_number
        commits = [commit for commit in commits if commit.commit_number <= newest]
        bound = self._latest_read_end(watermark)
        return commits, list(find_changes(commits, taken_results.commit, self.chain.asset, bound))

    def change_error(self, change: StateCommit, *, ended: bool = False) -> StaleError:
        """Return the error for a commit that can't be a step.

        Args:
            ended: true if the reason is that the chain has ended.
        """
        return self._stale_error(
            f"run {change.run[:8]} of '{base_transform(self.chain.asset).name}' (a {change.mode}, "
            f"{format_instant(change.started)}) changed windows that '{self.name}' had read"
            + (f", and '{self.name}' has ended" if ended else "")
        )

    def _latest_read_end(self, watermark: int | None) -> int | None:
        """Return the latest possible end of a window that the chain has read, in microseconds.

        Return None if the chain can't have read any window.
        """
        if self.chain.rows == "changes":
            # Firings are read, also those of open windows. Any window may therefore have been read.
            return INFINITY
        return self.chain.settled_end(watermark)

    @cached_property
    def _released_ends(self) -> list[int]:
        """The ends of windows that were released from quarantine, in microseconds.

        Empty for a chain with `rows="changes"`, and for an asset without expectations.
        """
        asset = self.chain.asset
        if not asset.all_expectations or self.chain.rows == "changes":
            return []
        released = text_field("quality") == "released"
        rows = self.tables.read(asset.published_table, ["window_end", "quality"], released)
        if rows is None:
            return []
        return to_micros(rows["window_end"])

    def has_moved_windows(self, watermark: int | None) -> bool:
        """Return whether the published windows that a chain should have read are not those that it
        has read.

        A recomputation gives the same rows as before, but an expectation on all rows of a run, or
        with `mostly`, may pass or fail for another set of rows. Only the chain's event log shows
        which windows were published when the chain read them.
        """
        asset = self.chain.asset
        bound = self._latest_read_end(watermark)
        if self.chain.rows == "changes" or not asset.all_expectations or bound is None:
            return False
        keys = list(asset.keys)
        published = self.tables.read(
            asset.published_table,
            ["window_start", "window_end", *keys],
            ds.field("final") & (ds.field("window_end") <= arrow_instant(bound)),
        )
        read = self.tables.read(self.source.log_table, [FIRST, LAST, *keys])
        published_windows = _count_windows(published, "window_start", "window_end", keys)
        read_windows = _count_windows(read, FIRST, LAST, keys)
        # The last instant of a window is a microsecond before its end.
        return published_windows != Counter(
            {(start, last + 1, key): n for (start, last, key), n in read_windows.items()}
        )

    def _commits_from(self, first_number: int) -> list[StateCommit]:
        """Return the commits of the asset's state from a number on, in order."""
        table = self.chain.asset.state_table
        bounds = [at_least("commit_number", first_number)]
        rows = self.tables.read(
            table, ["commit_number", MARKER], ds.field(MARKER).is_valid(), bounds
        )
        if rows is None:
            return []
        return [from_json(text) for text in rows.sort_by("commit_number")[MARKER].to_pylist()]

    def _stale_error(self, cause: str) -> StaleError:
        return StaleError(Stale(self.name, cause, rebuild_advice(self.name)))


def _count_windows(
    rows: pa.Table | None, first_column: str, last_column: str, keys: Sequence[str]
) -> Counter[tuple[int, int, str]]:
    """Return how often rows have a window: its two bounds in microseconds, and its keys as text."""
    if rows is None:
        return Counter()
    key_texts = [repr(list(row.values())) for row in rows.select(keys).to_pylist()]
    texts = key_texts if keys else [""] * rows.num_rows
    return Counter(
        zip(to_micros(rows[first_column]), to_micros(rows[last_column]), texts, strict=True)
    )
