"""`python -m benchmarks.scale`: measure how the cost of a load grows with its size.

Each curve varies one fact: the number of events, of keys, of arrivals, of assets on one source, the
share of one key, or the age of late events. A cost that grows faster than its work is a fault, and
is marked. From all points, the benchmark fits a model, and compares its predictions with loads that
are on no curve.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from benchmarks.measuring.own import own_engine
from benchmarks.measuring.terminal import console
from benchmarks.scale.load import Curve, Load, curves, draw_unseen
from benchmarks.scale.model import FACTS, Costs, fit
from benchmarks.scale.picture import draw
from benchmarks.scale.points import Point, measure
from tidemark.base.settings import Settings

TOLERATED_GROWTH = 1.1
"""The exponent from which a cost grows faster than its work; measurements vary by a tenth."""
PREDICTION_AIM = 0.3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    names = [curve.name for curve in curves(0)]
    parser.add_argument("--curves", nargs="+", choices=names, default=names)
    parser.add_argument("--most", type=int, default=30_000_000, help="the most events of a load")
    parser.add_argument("--unseen", type=int, default=3, help="loads that test the model")
    parser.add_argument("--seed", type=int, default=1, help="chooses these loads")
    parser.add_argument("--memory", default="4g", help="the engine's memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--picture", type=Path, help="also draw the curves, as SVG")
    given = parser.parse_args()
    chosen = [curve for curve in curves(given.most) if curve.name in given.curves]
    points = {curve.name: _measure_all(curve.loads, curve.name, given.memory) for curve in chosen}
    for curve in chosen:
        console.print(_table(curve, points[curve.name]))
    costs = fit([point for measured in points.values() for point in measured])
    console.print(_costs_table(costs))
    unseen = draw_unseen(given.unseen, given.most, given.seed)
    tested = _measure_all(unseen, "unseen", given.memory)
    if tested:
        console.print(_predictions_table(costs, tested))
    if given.json is not None:
        figures = {**points, "unseen": tested}
        plain = {name: [asdict(p) for p in measured] for name, measured in figures.items()}
        written = {"points": plain, "costs": asdict(costs)}
        given.json.write_text(json.dumps(written, indent=2) + "\n")
    if given.picture is not None:
        draw(chosen, points, given.picture)
    return 0


def _measure_all(loads: Sequence[Load], name: str, memory: str) -> list[Point]:
    """Measure loads one after the other, on one engine that has run a small load before."""
    points = list[Point]()
    if not loads:
        return points
    with own_engine(memory) as settings:
        measure(settings, Load(), f"{name}_warm")
        for number, load in enumerate(loads):
            points.append(_measure(settings, load, f"{name}_{number}"))
    return points


def _measure(settings: Settings, load: Load, name: str) -> Point:
    point = measure(settings, load, name)
    console.print(f"{load.describe()}: backfill {point.backfill:.1f} s")
    return point


def _table(curve: Curve, points: Sequence[Point]) -> Table:
    table = Table(title=f"{curve.name}: {points[0].load.describe()}, growing")
    columns = ("ingest s", "backfill s", "increment s", "growth", "peak GB", "windows", "files")
    for column in (curve.fact, *columns, "GB"):
        table.add_column(column, justify="right")
    for number, point in enumerate(points):
        table.add_row(
            f"{curve.values[number]:,}",
            f"{point.ingest:.1f}",
            f"{point.backfill:.2f}",
            f"{point.increment:.2f}",
            _growth(curve, points, number),
            f"{point.peak:.1f}",
            f"{point.windows:,}",
            f"{point.files:,}",
            f"{point.gigabytes:.2f}",
        )
    return table


def _growth(curve: Curve, points: Sequence[Point], number: int) -> str:
    """Return how the backfill grows from the previous point.

    For a fact that is work, this is the exponent: 1 means in proportion. Otherwise, it is the ratio
    of the seconds for each window and event.
    """
    if number == 0:
        return ""
    before, now = points[number - 1], points[number]
    if not curve.is_work:
        return f"{_per_row(now) / _per_row(before):.2f} a row"
    ratio = curve.values[number] / curve.values[number - 1]
    exponent = math.log(now.backfill / before.backfill) / math.log(ratio)
    return f"{exponent:.2f}" + (" too fast" if exponent > TOLERATED_GROWTH else "")


def _per_row(point: Point) -> float:
    return point.backfill / (point.load.events + point.windows)


def _costs_table(costs: Costs) -> Table:
    table = Table(title="fitted costs, microseconds")
    for column in ("", *FACTS):
        table.add_column(column, justify="left" if column == "" else "right")
    for phase, seconds in (("ingest", costs.ingest), ("backfill", costs.backfill)):
        table.add_row(phase, *(f"{cost * 1e6:,.2f}" for cost in seconds))
    return table


def _predictions_table(costs: Costs, points: Sequence[Point]) -> Table:
    table = Table(title=f"predicted loads (aim: within {PREDICTION_AIM:.0%})")
    for column in ("load", "ingest s", "predicted", "off", "backfill s", "predicted", "off"):
        table.add_column(column, justify="left" if column == "load" else "right")
    for point in points:
        ingest, backfill = costs.predict(point.load, point.windows)
        table.add_row(
            point.load.describe(),
            f"{point.ingest:.1f}",
            f"{ingest:.1f}",
            _error(ingest, point.ingest),
            f"{point.backfill:.1f}",
            f"{backfill:.1f}",
            _error(backfill, point.backfill),
        )
    return table


def _error(predicted: float, measured: float) -> str:
    error = predicted / measured - 1
    return f"{error:+.0%}" + ("" if abs(error) <= PREDICTION_AIM else " missed")


if __name__ == "__main__":
    sys.exit(main())
