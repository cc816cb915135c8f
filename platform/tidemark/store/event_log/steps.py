"""The steps of a derived source: which arrival of which base each of its arrivals is.

The position of each arrival in the timeline records its step, and how far all bases had been taken.
It also has the id of each base's timeline, because a base that was dropped and created again has
other arrivals under the same numbers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log


@dataclass(frozen=True)
class TakenResults:
    """The results of an asset that a derived source has taken through a step.

    Args:
        table_id: the identity of the asset.
        commit: the number of its newest published commit.
        released: how many of the taken windows were published from quarantine.
    """

    table_id: str
    commit: int
    released: int = 0


@dataclass(frozen=True)
class Step:
    """An arrival of a derived source.

    Args:
        base: the name of the base whose arrival it is.
        taken: the newest arrival of each base that has been taken, including this one; a base of
            which nothing has been taken is missing.
        ids: the id of the timeline of each of these bases.
        results: the results of its asset that have been taken; None if it reads no asset.
    """

    base: str
    taken: Mapping[str, int]
    ids: Mapping[str, str]
    results: TakenResults | None = None

    @property
    def arrival(self) -> int:
        """The number of the base's arrival."""
        return self.taken[self.base]

    @property
    def before(self) -> dict[str, int]:
        """The newest taken arrival of each base before the step."""
        found = {**self.taken, self.base: self.arrival - 1}
        return {base: number for base, number in found.items() if number >= 0}

    def to_position(self) -> str:
        """Return the step as the position of an arrival."""
        others = {b: [n, self.ids[b]] for b, n in self.taken.items() if b != self.base}
        position = {
            "base": self.base,
            "arrival": self.arrival,
            "table_id": self.ids[self.base],
            "others": others,
        }
        if self.results is not None:
            position["results"] = asdict(self.results)
        return json.dumps(position)

    @classmethod
    def of_position(cls, position: str) -> "Step":
        """Return the step that a position describes."""
        found = json.loads(position)
        base, others = found["base"], found["others"]
        taken = {name: number for name, (number, _) in others.items()}
        ids = {name: table_id for name, (_, table_id) in others.items()}
        results = TakenResults(**found["results"]) if "results" in found else None
        return cls(
            base, {**taken, base: found["arrival"]}, {**ids, base: found["table_id"]}, results
        )


@dataclass(frozen=True)
class Steps:
    """Consecutive steps, with the watermarks of the bases.

    Args:
        steps: the steps.
        arrivals: for each base, its arrivals in these steps, and the newest one before them.
    """

    steps: Sequence[Step]
    arrivals: Mapping[str, Sequence[Arrival]] = field(repr=False)

    @classmethod
    def of_positions(cls, logs: Sequence[Log], positions: Sequence[str]) -> "Steps":
        """Return the steps that positions describe.

        Args:
            logs: the event logs of the bases.
        """
        steps = [Step.of_position(position) for position in positions]
        before = steps[0].before
        names = [log.source.name for log in logs]
        read = [log.timeline(before.get(n, 0) - 1) for log, n in zip(logs, names, strict=True)]
        return cls(steps, dict(zip(names, read, strict=True)))

    def span(self, base: str) -> tuple[int, int]:
        """Return the newest arrival of a base that was taken before these steps, and after them."""
        before = self.steps[0].before.get(base, -1)
        return before, self.steps[-1].taken.get(base, -1)

    def numbers(self, base: str) -> dict[int, int]:
        """Return the index of the step of each arrival of a base, by the arrival's number."""
        return {s.arrival: n for n, s in enumerate(self.steps) if s.base == base}

    def watermark_before(self, base: str) -> int | None:
        """Return the watermark of a base before the first of these steps."""
        before, _ = self.span(base)
        return next((a.after for a in self.arrivals[base] if a.arrival == before), None)

    def watermark_after(self, base: str) -> int | None:
        """Return the watermark of a base after the last of these steps."""
        advances = self.advances(base)
        return advances[-1][0] if advances else self.watermark_before(base)

    def advances(self, base: str) -> list[tuple[int, int]]:
        """Return each watermark that a base reaches in these steps, with the index of the step."""
        reached = self.watermark_before(base)
        after = {a.arrival: a.after for a in self.arrivals[base]}
        found = list[tuple[int, int]]()
        for arrival, number in self.numbers(base).items():
            mark = after[arrival]
            if mark is not None and (reached is None or mark > reached):
                found.append((mark, number))
                reached = mark
        return found

    def event_times(self, base: str) -> tuple[int, int] | None:
        """Return the range of event times of a base's rows in these steps; None without rows."""
        numbers = self.numbers(base)
        taken = [a for a in self.arrivals[base] if a.arrival in numbers]
        oldest = [a.min_event_time for a in taken if a.min_event_time is not None]
        newest = [a.max_event_time for a in taken if a.max_event_time is not None]
        return (min(oldest), max(newest)) if oldest and newest else None
