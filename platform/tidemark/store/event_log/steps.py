"""Define the steps of a derived source. Each arrival of the source is one step.

A step *takes* (reads) one arrival of one base. A chain of changes also has steps that take a commit
of its asset, such as a correction, which changed windows without an arrival.

In the timeline, the `position` of each arrival stores the step: what it took, and the newest
arrival of each base that had been taken, with the identity of that arrival (`TakenArrival`). A base
that was dropped, restored from a backup, or re-recorded has other arrivals under the same numbers.
A reader that continues from a step compares the identities first (`store.lineage`).

The *effective watermark* of a base equals the base's own watermark, unless a heartbeat of the base
has raised it (`define.derived.progress`). The step of such a heartbeat records the value.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Protocol

from tidemark.base.instants import latest_watermark
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival, event_time_range

_RAISES = "raises"


class BaseLog(Protocol):
    """The event log of a base (`event_log.log.Log`), which itself records steps."""

    source: Source

    def read_timeline(self, after_arrival: int = -1) -> list[Arrival]:
        """Return the arrivals after a number, in order."""
        ...


@dataclass(frozen=True)
class TakenArrival:
    """The newest arrival of a base that has been taken, as of a step.

    Args:
        number: the number of the arrival.
        arrival_id: the identity of the arrival.
        table_id: the identity of the base's timeline.
        schema_version: the schema version of the base's event log at that arrival.
    """

    number: int
    arrival_id: str
    table_id: str
    schema_version: int = 1


@dataclass(frozen=True)
class TakenResults:
    """How far a derived source has read the results of an asset, as of a step.

    Args:
        table_id: the identity of the asset.
        commit: the number of the asset's newest published commit that was read.
        run: the id of the run that made this commit, which identifies the commit.
        released: the number of windows read so far that were released from quarantine.
    """

    table_id: str
    commit: int
    run: str = ""
    released: int = 0


@dataclass(frozen=True)
class ChangedResults:
    """A commit of an asset that changed windows without an arrival, such as a correction.

    The commit's number is in the same step, as `TakenResults.commit`.

    Args:
        run: the id of the run that made the commit.
        mode: the kind of that run.
        known: the number of the newest commit that the derived source had read before.
    """

    run: str
    mode: str
    known: int


@dataclass(frozen=True)
class Step:
    """An arrival of a derived source: how far the source has then read its bases.

    Args:
        base: the name of the base whose arrival the step takes; with `change`, the name of the
            asset's source.
        bases: for each base, the newest arrival that has been taken, including that of this step. A
            base of which no arrival has been taken is missing.
        derivation: the fingerprint of the derivation that computed the step (`define.identity`).
        results: the results of the asset that have been read; None if the source reads no asset.
        raises: the effective watermark of the base, if the step raises it; else None.
        change: the commit of the asset that the step takes instead of an arrival; None if the step
            takes an arrival.
    """

    base: str
    bases: Mapping[str, TakenArrival]
    derivation: str = ""
    results: TakenResults | None = None
    raises: int | None = None
    change: ChangedResults | None = None

    @property
    def taken_arrivals(self) -> dict[str, int]:
        """For each base in `bases`, the number of the newest arrival that has been taken."""
        return {name: arrival.number for name, arrival in self.bases.items()}

    @property
    def taken_arrival(self) -> int:
        """The number of the arrival that the step takes.

        With `change`, the number of the base's newest arrival that earlier steps took.
        """
        return self.bases[self.base].number

    @property
    def arrivals_before(self) -> dict[str, int]:
        """For each base, the newest arrival that was read before the step."""
        newest = self.taken_arrivals
        if self.change is None:
            newest[self.base] = self.taken_arrival - 1
            if newest[self.base] < 0:
                del newest[self.base]
        return newest

    def to_position(self) -> str:
        # A list, because a mapping by name could look like the position of another connector.
        taken = [[name, *astuple(arrival)] for name, arrival in self.bases.items()]
        position: dict[str, object] = {
            "base": self.base,
            "taken": taken,
            "derivation": self.derivation,
        }
        if self.results is not None:
            position["results"] = asdict(self.results)
        if self.raises is not None:
            position[_RAISES] = self.raises
        if self.change is not None:
            position["change"] = asdict(self.change)
        return json.dumps(position)

    @classmethod
    def of_position(cls, position: str) -> "Step":
        fields = json.loads(position)
        bases = {name: TakenArrival(*arrival) for name, *arrival in fields["taken"]}
        results = TakenResults(**fields["results"]) if "results" in fields else None
        change = ChangedResults(**fields["change"]) if "change" in fields else None
        return cls(
            base=fields["base"],
            bases=bases,
            derivation=fields["derivation"],
            results=results,
            raises=fields.get(_RAISES),
            change=change,
        )


def raised_watermarks(positions: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Return, by base, the arrivals that raise its effective watermark, each with the new value.

    A base without such arrivals is missing.

    Args:
        positions: positions of steps, in order.
    """
    by_base = dict[str, list[tuple[int, int]]]()
    for position in positions:
        # Most steps raise no watermark, and their positions need not be parsed.
        if _RAISES not in position:
            continue
        step = Step.of_position(position)
        if step.raises is not None:
            by_base.setdefault(step.base, []).append((step.taken_arrival, step.raises))
    return by_base


def effective_watermark(
    raised: Sequence[tuple[int, int]], arrival: int, own_watermark: int | None
) -> int | None:
    """Return the effective watermark of a base after one of its arrivals.

    Args:
        raised: the base's list in the result of `raised_watermarks`.
        own_watermark: the base's own watermark after the arrival; None is minus infinity, as in
            the result.
    """
    count = bisect_right(raised, arrival, key=lambda raise_: raise_[0])
    if count == 0:
        return own_watermark
    _, raised_watermark = raised[count - 1]
    return latest_watermark([own_watermark, raised_watermark])


@dataclass(frozen=True)
class Steps:
    """Consecutive steps, with the watermarks of the bases.

    Args:
        arrivals: for each base, the arrivals that these steps take, and the newest arrival before
            them, if there is one. A list may also contain later arrivals.
        raised: the result of `raised_watermarks` for these steps and all earlier ones.
    """

    steps: Sequence[Step]
    arrivals: Mapping[str, Sequence[Arrival]] = field(repr=False)
    raised: Mapping[str, Sequence[tuple[int, int]]] = field(
        default_factory=dict[str, Sequence[tuple[int, int]]], repr=False
    )

    @classmethod
    def of_positions(
        cls, logs: Sequence[BaseLog], positions: Sequence[str], earlier: Iterable[str] = ()
    ) -> "Steps":
        """Return the steps that positions describe.

        Args:
            logs: the event logs of the bases.
            earlier: the positions of all earlier steps; needed only for effective watermarks.
        """
        steps = [Step.of_position(position) for position in positions]
        before = steps[0].arrivals_before
        arrivals = dict[str, Sequence[Arrival]]()
        for log in logs:
            name = log.source.name
            arrivals[name] = log.read_timeline(before.get(name, 0) - 1)
        raised = raised_watermarks(dict.fromkeys((*earlier, *positions)))
        return cls(steps, arrivals, raised)

    def arrival_span(self, base: str) -> tuple[int, int]:
        """Return through which arrival a base had been taken before these steps, and after them.

        -1 stands for no arrival.
        """
        before = self.steps[0].arrivals_before.get(base, -1)
        return before, self.steps[-1].taken_arrivals.get(base, -1)

    def step_indexes(self, base: str) -> dict[int, int]:
        """Return the indexes of the steps that take a base's arrivals, by the arrival's number."""
        indexes = dict[int, int]()
        for index, step in enumerate(self.steps):
            if step.base == base and step.change is None:
                indexes[step.taken_arrival] = index
        return indexes

    def split_at_changes(self) -> Iterator[tuple[int, "Steps"]]:
        """Yield these steps in groups, each with the index of its first step.

        A step with a `change` is a group alone. All steps between two such steps are one group.
        """
        first = 0
        for number, step in enumerate(self.steps):
            if step.change is not None:
                if first < number:
                    yield first, replace(self, steps=self.steps[first:number])
                yield number, replace(self, steps=[step])
                first = number + 1
        if first < len(self.steps):
            yield first, replace(self, steps=self.steps[first:])

    def watermark_before(self, base: str) -> int | None:
        """Return the effective watermark of a base before the first of these steps."""
        before, _ = self.arrival_span(base)
        own_watermark = None
        for arrival in self.arrivals[base]:
            if arrival.arrival == before:
                own_watermark = arrival.after
                break
        return effective_watermark(self.raised.get(base, ()), before, own_watermark)

    def watermark_after(self, base: str) -> int | None:
        """Return the effective watermark of a base after the last of these steps."""
        advances = self.watermark_advances(base)
        if advances:
            return advances[-1][0]
        return self.watermark_before(base)

    def watermark_advances(self, base: str) -> list[tuple[int, int]]:
        """Return each rise of a base's effective watermark: the new value, and the step's index."""
        reached = self.watermark_before(base)
        raised = self.raised.get(base, ())
        watermarks_after = dict[int, int | None]()
        for arrival in self.arrivals[base]:
            watermark = effective_watermark(raised, arrival.arrival, arrival.after)
            watermarks_after[arrival.arrival] = watermark
        advances = list[tuple[int, int]]()
        for number, index in self.step_indexes(base).items():
            watermark = watermarks_after[number]
            if watermark is not None and (reached is None or watermark > reached):
                advances.append((watermark, index))
                reached = watermark
        return advances

    def count_rows(self) -> int:
        """Return the number of the bases' rows that these steps bring."""
        count = 0
        for base in self.arrivals:
            count += sum(arrival.rows for arrival in self._arrivals_of(base))
        return count

    def event_times(self, base: str) -> tuple[int, int] | None:
        """Return the range of event times of a base's rows in these steps; None without rows."""
        return event_time_range(self._arrivals_of(base))

    def _arrivals_of(self, base: str) -> list[Arrival]:
        before, through = self.arrival_span(base)
        return [a for a in self.arrivals[base] if before < a.arrival <= through]
