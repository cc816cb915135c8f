"""`make nexmark`: run the queries of NEXMark as batch and as stream, and compare their rows.

Each query runs as a batch and as a stream in random cuts, over 100,000 generated events. Its rows
are compared with those of the same query written by hand for Spark. The measured time of batch and
stream starts when the event logs of the sources are complete. The hand-written query reads the same
event logs, and writes its rows to a Delta table. Most queries also run over the events of Apache
Beam's generator or of RisingWave's tests. Their rows are compared with those of Beam's model, or
with those that RisingWave expects.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks.measuring.own import own_engine
from benchmarks.measuring.terminal import console
from benchmarks.nexmark import beam, risingwave
from benchmarks.nexmark.domain.generator import EVENTS, Events
from benchmarks.nexmark.peer import Peer
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.runs import SPAN, differing, land, run_batch, run_by_hand, run_stream
from tidemark import engine
from tidemark.base.counts import format_count
from tidemark.store.warehouse import Warehouse

_PEERS = ["beam", "risingwave"]
Places = tuple[Warehouse, Warehouse]
"""A warehouse for batches and one for streams, with the same event logs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make nexmark", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[q.name for q in QUERIES], metavar="QUERY")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of the two generators")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random cuts")
    parser.add_argument("--memory", default="4g", help="the engine's memory")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=_PEERS,
        default=_PEERS,
        metavar="PEER",
        help="whose rows to compare: beam (it needs a JDK), risingwave, or none; default: both",
    )
    given = parser.parse_args()
    chosen = [q for q in QUERIES if q.name in (given.only or [q.name])]
    chance = random.Random(given.seed)
    peers = list[Peer]()
    if "beam" in given.peers:
        with console.status("running Beam's models"):
            peers.append(beam.run_beam(given.events))
    if "risingwave" in given.peers:
        peers.append(risingwave.read_published())
    with own_engine(given.memory) as settings:
        spark = engine.connect_session(settings)
        compared = dict[str, str]()
        for peer in peers:
            compared |= _compare(spark, settings.warehouse, peer, chosen, chance)
        places = _place(spark, settings.warehouse, "own", Events(given.events).all, SPAN)
        # The first query would otherwise include the engine's warm-up.
        for run in (run_by_hand, run_batch):
            run(places[0], replace(QUERIES[1], name="warm_up"))
        rows = [_measure(query, places, chance, compared.get(query.name)) for query in chosen]
    table = Table(
        *("query", "rows", "equal", "also equal to"),
        *("batch s", "stream s", "Spark s", "batch / Spark"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return 1 if any(_DIFFERENCE in cell for row in rows for cell in row) else 0


_DIFFERENCE = " differ"


def _place(
    spark: SparkSession, location: str, name: str, events: Sequence[pd.DataFrame], span: str
) -> Places:
    """Write events to the event logs of two warehouses, for batches and for streams."""
    batch, stream = (
        Warehouse(spark, location, f"{name}_{way}", registered=False) for way in ("batch", "stream")
    )
    with (
        console.status(f"writing the event logs {name}"),
        tempfile.TemporaryDirectory() as landing,
    ):
        land(batch, events, Path(landing), span)
        shutil.copytree(batch.path_of(""), stream.path_of(""))
    counts = (format_count(len(each), what) for each, what in zip(events, _KINDS, strict=True))
    console.print(f"event logs {name}: {', '.join(counts)}")
    return batch, stream


_KINDS = ("person", "auction", "bid")


def _compare(
    spark: SparkSession, location: str, peer: Peer, chosen: Sequence[Query], chance: random.Random
) -> dict[str, str]:
    """Return, by query, text about whether its rows equal the rows of a peer."""
    queries = [replace(q, rows=peer.rows[q.name]) for q in chosen if q.name in peer.rows]
    if not queries:
        return {}
    batch, stream = _place(spark, location, peer.name, peer.events, peer.span)
    found = dict[str, str]()
    for query in queries:
        with console.status(f"{query.name} and {peer.name}"):
            outcomes = run_batch(batch, query), run_stream(stream, query, chance)
            differ = [peer.count_differing(query.name, each.rows) for each in outcomes]
        rows = f"{peer.name}: {format_count(peer.results[query.name].total(), 'row')}"
        found[query.name] = _describe(differ) or rows
        console.print(f"{query.name} and {rows}: {_describe(differ) or 'equal'}")
    return found


def _measure(
    query: Query, places: Places, chance: random.Random, compared: str | None
) -> list[str]:
    """Return the row of a query in the table."""
    if query.step is None:
        return [query.name, "", query.missing]
    with console.status(query.name):
        by_hand = run_by_hand(places[0], query)
        batch, stream = run_batch(places[0], query), run_stream(places[1], query, chance)
        count = by_hand.rows.count()
        differ = [differing(by_hand.rows, each.rows) for each in (batch, stream)]
    times = [f"{each.seconds:.1f}" for each in (batch, stream, by_hand)]
    equal = _describe(differ) or "yes"
    console.print(
        f"{query.name}: {format_count(count, 'row')}, equal: {equal}; batch {times[0]} s, "
        f"stream {times[1]} s, Spark {times[2]} s"
    )
    ratio = f"{batch.seconds / by_hand.seconds:.1f}"
    return [query.name, f"{count:,}", equal, compared or "", *times, ratio]


def _describe(differ: Sequence[int]) -> str:
    """Return how many rows differ; empty if none does."""
    batch, stream = differ
    return f"{batch:,} rows of batch, {stream:,} of stream{_DIFFERENCE}" if batch or stream else ""


if __name__ == "__main__":
    sys.exit(main())
