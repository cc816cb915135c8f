"""Read how far a derived source has read each of its bases, and which base holds it back."""

from dataclasses import dataclass

from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.progress import Progress
from tidemark.store.commits.conditions import at_least
from tidemark.store.event_log.arrival import read_arrivals
from tidemark.store.event_log.steps import Step, effective_watermark, raised_watermarks
from tidemark_streaming.snapshot.tables import Tables


@dataclass(frozen=True)
class BaseSnapshot:
    """The progress of a base, as its derived source has read it. Times are in microseconds.

    Args:
        watermark: the base's effective watermark; None before its first event.
        silent_since: the time since which the base is silent; None if it is not.
        idle: whether the base is silent for so long that it does not hold back the derived source.
        holds_back: whether the watermark of the derived source can't advance before this base's.
    """

    name: str
    watermark: int | None
    silent_since: int | None
    idle: bool
    holds_back: bool


def read_bases(tables: Tables, source: DerivedSource) -> list[BaseSnapshot]:
    """Return the bases of a derived source, as of its newest arrival; none without arrivals."""
    timeline = source.timeline_table
    newest = tables.read_newest(timeline, "arrival", None, 1)
    if newest is None or newest.num_rows == 0:
        return []
    taken = Step.of_position(newest["position"][0].as_py()).taken_arrivals
    positions = list[str]()
    if source.idle is not None:
        steps = tables.read(timeline, ["arrival", "position"])
        assert steps is not None
        positions = steps.sort_by("arrival")["position"].to_pylist()
    raised = raised_watermarks(positions)
    progress = Progress(source)
    silent_since = dict[str, int | None]()
    for base, number in taken.items():
        table = next(b.timeline_table for b in source.base_sources if b.name == base)
        rows = tables.read(table, bounds=[at_least("arrival", number)])
        arrivals = [] if rows is None else read_arrivals(rows)
        for arrival in (a for a in arrivals if a.arrival == number):
            reached = effective_watermark(raised.get(base, ()), number, arrival.after)
            progress.resume_after(base, reached, arrival.arrived_at, arrival.silent_since)
            silent_since[base] = arrival.silent_since
    return [
        BaseSnapshot(
            name=base,
            watermark=watermark,
            silent_since=silent_since.get(base),
            idle=base in progress.idle_bases,
            holds_back=base in progress.holding_bases,
        )
        for base, watermark in progress.reached.items()
    ]
