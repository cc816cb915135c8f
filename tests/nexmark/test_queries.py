"""Each query of NEXMark has the same rows as batch, as stream in random cuts, and by hand, and most
have the rows of another implementation."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from benchmarks.nexmark.beam import COMPARISONS
from benchmarks.nexmark.domain.generator import EPOCH, Events
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.risingwave import read_published
from benchmarks.nexmark.runs import SOURCES, differing, land, run_batch, run_by_hand, run_stream
from helpers.suite.nightly import mostly_nightly
from tidemark.store.warehouse import Warehouse
from tidemark_assets.definitions import build_definitions
from tidemark_streaming.files.recording import ARRIVES
from tidemark_streaming.home import domains

DOMAIN = "benchmarks.nexmark.domain"
EVENTS = Events(4_000)
PUBLISHED = read_published()
OF_EACH_KIND = {"q5"}
"""Sliding windows. `make nexmark` runs all queries."""


def test_each_query_has_a_definition_or_a_reason() -> None:
    assert [query.name for query in QUERIES] == [f"q{n}" for n in range(23)]
    found = domains.load_domains([DOMAIN])
    for query in QUERIES:
        assert bool(query.missing) == (query.step is None)
        if query.step is not None:
            assert query.step.name == query.name
            assert query.name in {**found.sources, **found.transforms}


def test_dagster_has_the_queries_below_the_sources() -> None:
    graph = build_definitions([DOMAIN], {"tidemark": None}).resolve_asset_graph()
    parents = {
        node.key.to_user_string(): {key.to_user_string() for key in node.parent_keys}
        for node in graph.asset_nodes
    }
    assert parents["q1_log"] == {"bids_log"}
    assert parents["q3_log"] == {"auctions_log", "sellers_log"}
    assert parents["closed_auctions_log"] == {"q9"}
    assert parents["q4"] == {"closed_auctions_log"}


def test_the_events_have_the_proportions_of_the_benchmark() -> None:
    counts = [len(each) for each in (EVENTS.persons, EVENTS.auctions, EVENTS.bids)]
    assert counts == [n * EVENTS.count // EPOCH for n in (1, 3, 46)]
    assert EVENTS.bids.equals(Events(EVENTS.count).bids)
    hottest = EVENTS.bids["auction"].value_counts(normalize=True).iloc[0]
    assert hottest > 0.1
    times = EVENTS.bids["arrives"] - EVENTS.bids["date_time"]
    assert times.between("0s", "2s").all()
    assert not EVENTS.bids["arrives"].is_monotonic_increasing
    assert set(EVENTS.auctions["seller"]) <= set(EVENTS.persons["id"])


def test_all_other_queries_are_compared_with_another_implementation() -> None:
    names = {query.name for query in QUERIES}
    assert PUBLISHED.rows.keys() == PUBLISHED.results.keys()
    assert names - COMPARISONS.keys() - PUBLISHED.rows.keys() == {"q6", "q10", "q11", "q12", "q13"}
    for source, events in zip(SOURCES, PUBLISHED.events, strict=True):
        assert {*events.columns} == {*source.columns, ARRIVES}


# It runs twelve queries.
@pytest.mark.slow
def test_batches_have_the_rows_that_risingwave_publishes(shared: Warehouse, tmp_path: Path) -> None:
    place = Warehouse(shared.spark, shared.location, "published", registered=False)
    land(place, PUBLISHED.events, tmp_path, PUBLISHED.span)
    for query in QUERIES:
        if query.name in PUBLISHED.rows:
            rows = run_batch(place, replace(query, rows=PUBLISHED.rows[query.name])).rows
            assert PUBLISHED.count_differing(query.name, rows) == 0, query.name


@pytest.fixture(scope="module")
def places(shared: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> list[Warehouse]:
    """Return two warehouses with the same event logs."""
    names = [f"{shared.database}_{way}" for way in ("batch", "stream")]
    found = [Warehouse(shared.spark, shared.location, name, registered=False) for name in names]
    land(found[0], EVENTS.all, tmp_path_factory.mktemp("landing"), span="15 seconds")
    shutil.copytree(found[0].path_of(""), found[1].path_of(""))
    return found


# Each takes several seconds.
@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    mostly_nightly(
        sorted((q for q in QUERIES if q.step), key=lambda q: q.name not in OF_EACH_KIND),
        len(OF_EACH_KIND),
    ),
    ids=lambda q: q.name,
)
def test_batch_and_stream_have_the_rows_of_the_query(places: list[Warehouse], query: Query) -> None:
    by_hand = run_by_hand(places[0], query).rows
    expected = values(by_hand)
    assert expected
    chance = random.Random(query.name)
    for found in (run_batch(places[0], query), run_stream(places[1], query, chance)):
        # The engine also compares values of different types, and takes ten times longer.
        assert values(found.rows) == expected or differing(found.rows, by_hand) == 0


def values(rows: DataFrame) -> Counter[str]:
    """Return the values of rows, without the names of their columns."""
    return Counter(str(tuple(row)) for row in rows.collect())
