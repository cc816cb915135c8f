"""Turn new arrivals of the bases of a derived source into its next steps."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidemark.base.instants import INFINITY
from tidemark.define.derived.progress import Progress
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.steps import ChangedResults, Step, TakenArrival, TakenResults
from tidemark_streaming.connector import Chunk
from tidemark_streaming.snapshot.asset_results import AssetResults


class WaitingArrival(NamedTuple):
    """An arrival of a base that no step has taken. The first three fields are the order of steps.

    Args:
        clock: the processing time of the arrival.
        base_index: the index of its base in the definition.
        number: its number in the base.
        base: the name of the base.
    """

    clock: int
    base_index: int
    number: int
    base: str
    arrival: Arrival


@dataclass
class StepChunks:
    """The chunks of consecutive steps, and what has been read as of the newest one.

    Args:
        derivation: the fingerprint of the source's derivation.
        table_ids: the identity of each base's timeline.
        progress: the progress of the bases as of the newest step.
        bases: the newest arrival of each base that has been taken.
        clock: the processing time of the newest step; None before the first one.
        results: the results of a chain's asset; None if the source is not a chain.
        taken_results: the results that the newest step has read.
        changes: the commits of a chain's asset that no step has taken, in order.
    """

    derivation: str
    table_ids: Mapping[str, str]
    progress: Progress
    bases: dict[str, TakenArrival]
    clock: int | None
    results: AssetResults | None = None
    taken_results: TakenResults | None = None
    changes: Sequence[StateCommit] = ()
    chunks: list[Chunk] = field(default_factory=list[Chunk])

    def add_all(self, waiting: Sequence[WaitingArrival], changed_base: str) -> None:
        """Append one chunk to `chunks` for each waiting arrival, and for each commit in `changes`.

        Args:
            waiting: the arrivals, in the order in which they are taken.
            changed_base: the name of the only base of a chain, which becomes the `Step.base` of the
                commits. Other derived sources have no commits, so the name is not used.
        """
        for entry in _merge_changes(waiting, self.changes, self.results):
            if isinstance(entry, StateCommit):
                self._add_change(entry, changed_base)
            else:
                self._add_arrival(entry)

    def _add_arrival(self, waiting: WaitingArrival) -> None:
        base = waiting.base
        arrival = waiting.arrival
        self.bases[base] = TakenArrival(
            waiting.number, arrival.arrival_id, self.table_ids[base], arrival.schema_version
        )
        raises = self.progress.take_arrival(
            base, arrival.after, waiting.clock, arrival.silent_since
        )
        silent_since = None
        if arrival.silent_since is not None:
            silent_since = self.progress.silent_since
        if self.results is not None:
            self.taken_results = self.results.results_after(arrival.after, self.changes)
        step = Step(base, dict(self.bases), self.derivation, self.taken_results, raises)
        self._add_chunk(step, waiting.clock, size=arrival.bytes, silent_since=silent_since)

    def _add_change(self, commit: StateCommit, base: str) -> None:
        assert self.results is not None
        assert self.taken_results is not None
        if self.progress.derived_watermark == INFINITY:
            raise self.results.change_error(commit, ended=True)
        change = ChangedResults(commit.run, commit.mode, self.taken_results.commit)
        self.taken_results = replace(
            self.taken_results, commit=commit.commit_number, run=commit.run
        )
        self.changes = self.changes[1:]
        step = Step(base, dict(self.bases), self.derivation, self.taken_results, change=change)
        self._add_chunk(step, commit.started)

    def _add_chunk(
        self, step: Step, clock: int, *, size: int = 0, silent_since: int | None = None
    ) -> None:
        if self.clock is not None:
            clock = max(clock, self.clock)
        self.clock = clock
        watermark = self.progress.derived_watermark
        self.chunks.append(
            Chunk(
                step.to_position(),
                clock,
                bytes=size,
                watermark=watermark,
                end=watermark == INFINITY,
                silent_since=silent_since,
            )
        )


def _merge_changes(
    waiting: Sequence[WaitingArrival],
    changes: Sequence[StateCommit],
    results: AssetResults | None,
) -> Iterator[WaitingArrival | StateCommit]:
    """Merge arrivals with the commits that changed the results of a chain's asset.

    Yield each commit directly after the arrivals that the asset had processed before it.

    Args:
        waiting: the arrivals, in the order in which they are taken.
        changes: the commits, in order; none if the source is not a chain.
        results: the results of the chain's asset; None if the source is not a chain.
    """
    next_changes = deque(changes)
    for arrival in waiting:
        while results is not None and next_changes:
            if results.arrival_of(next_changes[0]) >= arrival.number:
                break
            yield next_changes.popleft()
        yield arrival
    yield from next_changes
