"""Each query of NEXMark has the same rows as batch, as stream in random cuts, and by hand."""

import random

import pytest

from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.nexmark.runs import differing, land, run_batch, run_by_hand, run_stream
from tidemark.store.warehouse import Warehouse
from tidemark_assets.definitions import build_definitions
from tidemark_assets.nexmark.generator import EPOCH, Events
from tidemark_streaming.home import domains

DOMAIN = "tidemark_assets.nexmark"
EVENTS = Events(4_000)


def test_each_query_has_a_definition_or_a_reason() -> None:
    assert [query.name for query in QUERIES] == [f"q{n}" for n in range(23)]
    found = domains.load([DOMAIN])
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


@pytest.fixture(scope="module")
def places(shared: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> list[Warehouse]:
    """Return two warehouses with the same event logs."""
    landing, found = tmp_path_factory.mktemp("landing"), list[Warehouse]()
    for way in ("batch", "stream"):
        name = f"{shared.database}_{way}"
        found.append(Warehouse(shared.spark, shared.location, name, registered=False))
        land(found[-1], EVENTS.all, landing, span="15 seconds")
    return found


# They take three minutes.
@pytest.mark.slow
@pytest.mark.parametrize("query", [q for q in QUERIES if q.step], ids=lambda q: q.name)
def test_batch_and_stream_have_the_rows_of_the_query(places: list[Warehouse], query: Query) -> None:
    by_hand = run_by_hand(places[0], query)
    assert by_hand.rows.count() > 0
    assert differing(run_batch(places[0], query).rows, by_hand.rows) == 0
    stream = run_stream(places[1], query, random.Random(query.name))
    assert differing(stream.rows, by_hand.rows) == 0
