"""Tables of the latency and throughput of contenders, with ratios to their peers and targets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

LATENCY_AIM, RATE_AIM = 0.5, 2.0
"""The target ratios to a peer's p50, and to the rate at which it processes a backlog."""

Seconds = npt.NDArray[np.float64]


@dataclass
class Figures:
    """The figures of one contender.

    Args:
        peer: true if other contenders are compared with this contender.
        seconds: the latencies of all events, by rate and round.
        rates: for each backlog, the events per second, including the start.
        running: for each backlog, the events per second without the start.
        engine, own: the peak memory of the engine and of the contender's own processes, in GB.
        differing: the number of windows that differ from those of the sent events.
    """

    title: str
    peer: bool = False
    seconds: dict[int, list[Seconds]] = field(default_factory=dict[int, list[Seconds]])
    rates: list[float] = field(default_factory=list[float])
    running: list[float] = field(default_factory=list[float])
    engine: float = 0.0
    own: float = 0.0
    differing: int | None = None

    def quantile(self, rate: int, percent: int) -> float:
        """Return a percentile of the latencies at a rate, over all rounds."""
        return float(np.percentile(np.concatenate(self.seconds[rate]), percent))

    def plain(self) -> dict[str, Any]:
        """Return all figures as values of JSON."""
        each = {
            str(rate): {
                "p50": round(self.quantile(rate, 50), 3),
                "p99": round(self.quantile(rate, 99), 3),
                "p50 of rounds": [round(float(np.median(s)), 3) for s in rounds],
            }
            for rate, rounds in self.seconds.items()
        }
        return {**vars(self), "seconds": each}


def latencies(figures: Sequence[Figures], rates: Sequence[int]) -> Table:
    """Return a table of the latencies, with their ratios to the peers'."""
    table = Table(title="from an event in Kafka to its window in Delta")
    peers = [f for f in figures if f.peer and f.seconds]
    _columns(table, "", "events/s", "p50 s", "p99 s", "p50 of each round")
    _columns(table, *(f"ratio to {p.title}" for p in peers))
    for rate in rates:
        for f in (f for f in figures if rate in f.seconds):
            p50, rounds = f.quantile(rate, 50), f.seconds[rate]
            shares = [p50 / p.quantile(rate, 50) for p in peers]
            each = " ".join(f"{np.median(s):.2f}" for s in rounds)
            table.add_row(
                *(f.title, f"{rate:,}", f"{p50:.2f}", f"{f.quantile(rate, 99):.2f}", each),
                *(_format_share(share, share <= LATENCY_AIM, f) for share in shares),
            )
    table.caption = f"target: {LATENCY_AIM} of a peer's p50"
    return table


def backlogs(figures: Sequence[Figures], events: int) -> Table:
    """Return a table of the rates of backlogs, with their ratios to the peers'."""
    table = Table(title=f"a backlog of {events:,} events")
    peers = [f for f in figures if f.peer and f.rates]
    _columns(table, "", "events/s", "without start", "GB engine", "GB own processes")
    _columns(table, *(f"ratio to {p.title}" for p in peers), *("without start" for _ in peers))
    for f in (f for f in figures if f.rates):
        rate, running = median(f.rates), median(f.running)
        shares = [rate / median(p.rates) for p in peers]
        shares += [running / median(p.running) for p in peers]
        table.add_row(
            *(f.title, f"{rate:,.0f}", f"{running:,.0f}", f"{f.engine:.1f}", f"{f.own:.2f}"),
            *(_format_share(share, share >= RATE_AIM, f) for share in shares),
        )
    table.caption = f"target: {RATE_AIM:.0f} times a peer's rate"
    return table


def _columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right" if name else "left")


def _format_share(share: float, met: bool, of: Figures) -> str:
    return f"{share:.2f}" + ("" if of.peer else " met" if met else " missed")
