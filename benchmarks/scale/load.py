"""Define the loads of the curves: each curve varies one fact of a load, and keeps the others."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.inputs.events import SOURCE, USUAL, GeneratedConnector, Shape
from benchmarks.inputs.workloads import PER_MINUTE
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform

_EVENTS = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 300_000_000)
_MONTH = 30 * 86_400.0
_YEAR = 365 * 86_400.0


@dataclass(frozen=True)
class Load:
    """The work of a run.

    Args:
        events: the number of events in the log.
        arrivals: the number of arrivals that bring them.
        assets: the number of assets that aggregate the source.
    """

    events: int = 1_000_000
    arrivals: int = 100
    assets: int = 1
    shape: Shape = USUAL

    def describe(self) -> str:
        return (
            f"{self.events:,} events, {self.arrivals:,} arrivals, {self.shape.keys:,} keys, "
            f"{self.assets} assets, key 0 has {self.shape.top_share:.0%} more, "
            f"ages up to {self.shape.late_seconds:,.0f} s"
        )

    def source(self, name: str) -> Source:
        return replace(SOURCE, name=name)

    def connector(self, source: Source) -> GeneratedConnector:
        return GeneratedConnector(self.events, self.arrivals, source, self.shape)

    def transforms(self, source: Source) -> list[WindowedTransform]:
        """Return the assets. They admit each event, however late it is."""
        names = [f"{source.name}_asset_{n}" for n in range(self.assets)]
        lateness = round(self.shape.late_seconds * 1e6)
        return [
            replace(PER_MINUTE, name=name, source=source, allowed_lateness=lateness)
            for name in names
        ]


@dataclass(frozen=True)
class Curve:
    """Loads that differ in one fact.

    Args:
        fact: what grows along the curve.
        values: the fact of each load, in ascending order.
        is_work: true if the time may grow in proportion to the fact; false if it may not grow.
    """

    name: str
    fact: str
    values: Sequence[float]
    loads: Sequence[Load]
    is_work: bool


def curves(most_events: int) -> list[Curve]:
    """Return all curves; loads with more than `most_events` events are left out."""
    events = [n for n in _EVENTS if n <= most_events]
    keys = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    shares = [0.0, 0.25, 0.5]
    ages = [600.0, 86_400.0, _MONTH, _YEAR]
    arrivals = [100, 1_000, 10_000, 100_000]
    assets = [1, 10, 100]
    base = Load()
    return [
        Curve("events", "events", events, [replace(base, events=n) for n in events], True),
        Curve("keys", "keys", keys, [replace(base, shape=Shape(keys=n)) for n in keys], False),
        Curve(
            "skew",
            "share of one key",
            shares,
            [replace(base, shape=Shape(top_share=n)) for n in shares],
            False,
        ),
        Curve(
            "lateness",
            "greatest age, seconds",
            ages,
            [replace(base, shape=Shape(late_seconds=n)) for n in ages],
            False,
        ),
        Curve(
            "arrivals", "arrivals", arrivals, [replace(base, arrivals=n) for n in arrivals], True
        ),
        Curve("assets", "assets", assets, [replace(base, assets=n) for n in assets], True),
    ]


def draw_unseen(count: int, most_events: int, seed: int) -> list[Load]:
    """Return loads that are on no curve, for a test of the model."""
    chance = random.Random(seed)
    return [
        Load(
            events=round(10 ** chance.uniform(6, math.log10(most_events))),
            arrivals=round(10 ** chance.uniform(2, 3.5)),
            assets=chance.randint(1, 8),
            shape=Shape(keys=round(10 ** chance.uniform(3, 5.5))),
        )
        for _ in range(count)
    ]
