"""`make nexmark`: run the queries of NEXMark as batch and as stream, and compare their rows.

Each query runs as a batch and as a stream in random cuts, over 100,000 generated events, and is
compared row by row with the same query written by hand for Spark. The time of batch and stream
begins with the event logs of the sources; the hand-written query reads these too, and writes its
rows to a Delta table. Queries for which Apache Beam has a comparable model run once more, over
100,000 events of Beam's own generator, and are compared with the rows of that model.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.table import Table

from benchmarks.measuring.own import own_engine
from benchmarks.measuring.terminal import console
from benchmarks.nexmark import beam
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.runs import differing, land, run_batch, run_by_hand, run_stream
from tidemark import engine
from tidemark.store.warehouse import Warehouse
from tidemark_assets.nexmark.generator import Events


def main() -> int:
    parser = argparse.ArgumentParser(prog="make nexmark", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[q.name for q in QUERIES], metavar="QUERY")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random cuts")
    parser.add_argument("--memory", default="4g", help="the engine's memory")
    parser.add_argument("--no-beam", action="store_true", help="do not compare with Beam's models")
    given = parser.parse_args()
    chosen = [q for q in QUERIES if q.name in (given.only or [q.name])]
    chance = random.Random(given.seed)
    models = None if given.no_beam else beam.run_beam()
    with own_engine(given.memory) as settings:
        spark = engine.session(settings)

        def place(name: str, events: Sequence[pd.DataFrame]) -> Warehouse:
            found = Warehouse(spark, settings.warehouse, name, registered=False)
            with tempfile.TemporaryDirectory() as landing:
                land(found, events, Path(landing))
            return found

        own = [place(name, Events().all) for name in ("batch", "stream")]
        of_beam = dict[str, str]()
        if models is not None:
            places = [place(f"beam_{name}", models.events) for name in ("batch", "stream")]
            for query in chosen:
                if (comparison := beam.COMPARISONS.get(query.name)) is not None:
                    same = replace(query, rows=comparison.rows)
                    found = (run_batch(places[0], same), run_stream(places[1], same, chance))
                    wanted = models.results[query.name]
                    of_beam[query.name] = _describe(
                        [beam.differing(each.rows, wanted) for each in found]
                    )
                    console.print(f"{query.name} and Beam: {of_beam[query.name]}")
        rows = [_measure(query, own, chance, of_beam.get(query.name, "")) for query in chosen]
    table = Table(
        *("query", "rows", "equal", "equal to Beam"),
        *("batch s", "stream s", "Spark s", "batch / Spark"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return 1 if any(cell not in ("", "yes") for row in rows for cell in row[2:4] if row[1]) else 0


def _measure(
    query: Query, places: Sequence[Warehouse], chance: random.Random, of_beam: str
) -> list[str]:
    """Return the row of a query in the table."""
    if query.step is None:
        return [query.name, "", query.missing]
    by_hand = run_by_hand(places[0], query)
    batch, stream = run_batch(places[0], query), run_stream(places[1], query, chance)
    row = [
        query.name,
        f"{by_hand.rows.count():,}",
        _describe([differing(by_hand.rows, each.rows) for each in (batch, stream)]),
        of_beam,
        *(f"{each.seconds:.1f}" for each in (batch, stream, by_hand)),
        f"{batch.seconds / by_hand.seconds:.1f}",
    ]
    console.print(*row)
    return row


def _describe(differ: Sequence[int]) -> str:
    batch, stream = differ
    return (
        "yes" if batch == stream == 0 else f"{batch:,} rows of batch, {stream:,} of stream differ"
    )


if __name__ == "__main__":
    sys.exit(main())
