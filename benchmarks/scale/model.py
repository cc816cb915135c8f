"""Predict the seconds of a load from a few measured costs.

A phase costs a constant for each asset, and something for each event, window and arrival. The costs
are fitted to the measured points with non-negative least squares of the relative errors, so that a
small run counts as much as a large one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.scale.load import Load
from benchmarks.scale.points import Point

FACTS = ("runs", "events", "windows", "arrivals")
"""The facts that cost time in a phase; of each asset, except for the ingest."""


@dataclass(frozen=True)
class Costs:
    """The seconds that one run, event, window and arrival cost, in the order of `FACTS`."""

    ingest: tuple[float, ...]
    backfill: tuple[float, ...]

    def predict(self, load: Load, windows: int) -> tuple[float, float]:
        """Return the seconds of the load's ingest and of its backfills.

        Args:
            windows: the number of windows of one asset.
        """
        facts = _facts(load, windows)
        return (
            float(np.dot(facts, self.ingest)),
            float(np.dot(facts, self.backfill)) * load.assets,
        )


def fit(points: Sequence[Point]) -> Costs:
    """Return the costs that fit the points best."""
    facts = np.array([_facts(point.load, point.windows) for point in points], dtype=np.float64)
    return Costs(
        ingest=_fit(facts, [point.ingest for point in points]),
        backfill=_fit(facts, [point.backfill / point.load.assets for point in points]),
    )


def _facts(load: Load, windows: int) -> list[float]:
    return [1.0, load.events, windows, load.arrivals]


def _fit(facts: np.ndarray, seconds: Sequence[float]) -> tuple[float, ...]:
    measured = np.array(seconds)
    # Facts differ by six orders of magnitude, which the solver's tolerance does not allow for.
    scale = facts.max(axis=0)
    relative = facts / scale / measured[:, None]
    costs, _ = nnls(relative, np.ones(len(seconds)))
    return tuple(float(cost) for cost in costs / scale)
