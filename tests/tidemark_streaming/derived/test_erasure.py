"""An erasure continues into the sources that are derived from its source, and into their assets.

The event log of a join is then its definition over the bases without the erased rows.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.data.searched import found
from helpers.model.join_oracle import BaseArrival, join_by_definition
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import ConflictError, DataError
from tidemark.base.instants import INFINITY
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, Join, join
from tidemark.define.derived.union import union
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Tumbling, Window
from tidemark.run import incremental
from tidemark.run.erase import deletion, recovery
from tidemark.run.erase.erase import ErasureReport, erase_events, list_tables
from tidemark.store import operations
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.graph import Graph
from tidemark.store.integrity import table_check
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.dropping import check_droppable, drop_owner
from tidemark.store.upkeep.maintenance import purge_old_files
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka.topic import KafkaSink
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.streams import continuous

SECOND = 1_000_000
ORDERS, PAYMENTS = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "id": "STRING"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
Given = Sequence[Sequence[ScenarioArrival]]


@dataclass(frozen=True)
class Shop:
    """Orders and payments, a join of them, and a union over it, all with assets."""

    paid: DerivedSource
    all: DerivedSource
    given: Given

    @classmethod
    def of(cls, given: Given, how: str, lateness: str | None = None) -> "Shop":
        paid = join(
            name="paid",
            left=ORDERS,
            right=PAYMENTS,
            on=["k"],
            within=Between("-2 seconds", "3 seconds"),
            how=how,
            allowed_lateness=lateness,
            rename={"payments.t": "paid_at", "payments.id": "payment"},
        )
        every = union(name="every", of=[paid, PAYMENTS])
        return cls(paid, every, given)

    @property
    def derived(self) -> list[DerivedSource]:
        return [self.paid, self.all]

    @property
    def assets(self) -> list[WindowedTransform]:
        newest = {"n": agg.count(), "newest": agg.max("id")}
        of_paid = WindowedTransform(
            name="paid_by_key",
            source=self.paid,
            keys=("k",),
            window=Tumbling("4 seconds"),
            allowed_lateness=0,
            aggregates=newest,
            description="",
            function=same,
        )
        return [
            of_paid,
            replace(of_paid, name="every_by_key", source=self.all, window=Session("2 seconds")),
            replace(of_paid, name="orders_by_key", source=ORDERS),
        ]

    def ingest_bases(self, warehouse: Warehouse) -> None:
        for base, arrivals in zip((ORDERS, PAYMENTS), self.given, strict=True):
            list(ingest(warehouse, MemoryConnector(base, arrivals), batch=None))

    def fill(self, warehouse: Warehouse) -> None:
        """Ingest and run everything."""
        self.ingest_bases(warehouse)
        for source in self.derived:
            connector = DerivedConnector(source, warehouse.location, warehouse.database)
            list(ingest(warehouse, connector, batch=None))
        for asset in self.assets:
            incremental(warehouse, asset, limit=7)
            incremental(warehouse, asset)

    def erase(self, warehouse: Warehouse, source: Source, id_: str) -> ErasureReport:
        condition = f"id = '{id_}'"
        return erase_events(warehouse, source, self.assets, condition, derived=self.derived)

    def check(self, warehouse: Warehouse, erased: set[str]) -> None:
        """Check that all tables are those of the events that were not erased."""
        arrivals = [
            [replace(a, rows=tuple(r for r in a.rows if r[2] not in erased)) for a in side]
            for side in self.given
        ]
        joined, unjoined = by_definition(warehouse, self.paid, arrivals)
        rows = warehouse.load_rows(self.paid.log_table).to_pylist()
        assert sorted((r["arrival"], str(r["id"]), str(r["payment"])) for r in rows) == joined
        assert len({(r["arrival"], r["position"]) for r in rows}) == len(rows)
        dead = warehouse.load_rows(self.paid.dead_letters_table).to_pylist()
        assert sorted((r["arrival"], r["reason"]) for r in dead) == unjoined
        for source in self.derived:
            assert check_derived_parity(warehouse, source).is_equal
            assert erasures.find_unfinished(warehouse, source) == []
        for asset in self.assets:
            assert check_parity(warehouse, asset).is_equal
        sources = [ORDERS, PAYMENTS, *self.derived]
        assert table_check.find_damage(warehouse.path_of(""), sources, self.assets) == []


def same(rows: Any) -> Any:  # noqa: ANN401
    return rows


def draw(chance: random.Random) -> Given:
    """Return random arrivals of orders and payments."""
    return [draw_arrivals(chance, name) for name in ("order", "payment")]


def draw_arrivals(chance: random.Random, name: str) -> list[ScenarioArrival]:
    found, clock, number = list[ScenarioArrival](), 0, 0
    for _ in range(5):
        clock += chance.randint(0, 3)
        rows = list[tuple[Any, ...]]()
        for _ in range(chance.choice([0, 1, 2, 4])):
            number += 1
            time = chance.randint(0, 12) * SECOND if chance.random() < 0.93 else None
            rows.append((time, chance.choice(["a", "a", "b", None]), f"{name}-of-ann-{number:03}"))
        found.append(ScenarioArrival(tuple(rows), clock))
    return [*found, ScenarioArrival((), clock + 1, ends=True)]


def by_definition(
    warehouse: Warehouse, source: DerivedSource, arrivals: Given
) -> tuple[list[tuple[int, str, str]], list[tuple[int, str]]]:
    definition = source.derivation
    assert isinstance(definition, Join)
    names = [base.name for base in source.base_sources]
    timeline = Log(warehouse, source).read_timeline()
    assert timeline[-1].after == INFINITY
    found = [Step.of_position(a.position) for a in timeline]
    bases = [
        [
            BaseArrival([dict(zip(["t", "k", "id"], r, strict=True)) for r in one.rows], b, a)
            for one, (b, a) in zip(given, marks(warehouse, base), strict=True)
        ]
        for base, given in zip(source.base_sources, arrivals, strict=True)
    ]
    joined, unjoined = join_by_definition(
        [(names.index(step.base), step.taken_arrival) for step in found],
        bases,
        reach=lambda t: (t - 2 * SECOND, t + 3 * SECOND),
        how=definition.how,
        lateness=definition.lateness,
        where=lambda _, __: True,
    )
    return (
        sorted((step, str(left), str(right)) for step, left, right in joined),
        sorted((step, f"{reason} in {names[side]}") for step, side, _, reason in unjoined),
    )


def marks(warehouse: Warehouse, base: Source) -> list[tuple[int | None, int | None]]:
    return [(a.before, a.after) for a in Log(warehouse, base).read_timeline()]


def ids(shop: Shop) -> list[tuple[Source, str]]:
    """Return the ids of all events with their sources."""
    sides = zip((ORDERS, PAYMENTS), shop.given, strict=True)
    return [(base, row[2]) for base, given in sides for one in given for row in one.rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "how", "lateness"),
    mostly_nightly(
        [(3, "full", "2 seconds"), (2, "inner", None), (1, "left", None), (4, "left", "3 seconds")]
    ),
)
def test_derived_sources_have_no_row_of_an_erased_event(
    warehouse: Warehouse, seed: int, how: str, lateness: str | None
) -> None:
    chance = random.Random(seed)
    shop = Shop.of(draw(chance), how, lateness)
    shop.fill(warehouse)
    place, erased = Path(warehouse.path_of("")), set[str]()
    chosen = chance.sample(ids(shop), 2)
    for source, id_ in chosen:
        planned = erase_events(
            warehouse,
            source,
            shop.assets,
            f"id = '{id_}'",
            derived=shop.derived,
            dry_run=True,
        )
        done = shop.erase(warehouse, source, id_)
        assert done.places == planned.places
        assert done.events == 1
        erased.add(id_)
        shop.check(warehouse, erased)
    again = shop.erase(warehouse, *chosen[-1])
    assert (again.events, again.places, again.resumed) == (0, [], 0)
    for each in (ORDERS, PAYMENTS, *shop.derived):
        list(purge_old_files(warehouse, list_tables(each, shop.assets), time.time_ns() // 1000))
    assert found(place, "-of-ann-")
    assert found(place, *erased) == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", mostly_nightly([("open_for_writing",), ("append_arrivals",)]))
def test_an_ingest_that_has_read_erased_events_appends_none_of_their_rows(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The erasure comes before a first ingest creates the tables, or before a later one appends.

    Nothing but the tables excludes the two, as if the lease of the ingest had ended.
    """
    shop = Shop.of(draw(random.Random(3)), "full", "2 seconds")
    if moment == "append_arrivals":
        begun = replace(shop, given=[one[:2] for one in shop.given])
        begun.ingest_bases(warehouse)
        list(ingest(warehouse, connect(warehouse, shop.paid), batch=None))
    shop.ingest_bases(warehouse)
    (*_, erased) = (id_ for base, id_ in ids(shop) if base is PAYMENTS)
    done, original = list[str](), getattr(Log, moment)

    def erase_first(log: Log, *args: Any) -> Any:  # noqa: ANN401 (passed on)
        if log.source is shop.paid and not done:
            done.append(erased)
            thread = threading.Thread(target=lambda: shop.erase(warehouse, PAYMENTS, erased))
            thread.start()
            thread.join()
        return original(log, *args)

    with monkeypatch.context() as erasing:
        erasing.setattr(Log, moment, erase_first)
        with pytest.raises(ConflictError):
            list(ingest(warehouse, connect(warehouse, shop.paid), batch=None))
    assert done
    shop.fill(warehouse)
    shop.check(warehouse, {erased})


def connect(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_continues_after_an_erasure_that_adds_rows(warehouse: Warehouse) -> None:
    orders = [ScenarioArrival(((0, "a", "o1"),), 1)]
    payments = [
        ScenarioArrival(((SECOND, "a", "p1"),), 2),
        # The first order can't be paid any more.
        ScenarioArrival(((20 * SECOND, "b", "p2"),), 3),
    ]
    shop = Shop.of([orders, payments], "left")
    connector = DerivedConnector(shop.paid, warehouse.location, warehouse.database)
    asset = shop.assets[0]
    shop.ingest_bases(warehouse)
    list(ingest(warehouse, connector, batch=None))
    stream(warehouse, asset)
    erase_events(warehouse, PAYMENTS, [asset], "id = 'p1'", derived=[shop.paid])
    (row,) = warehouse.load_rows(shop.paid.log_table).to_pylist()
    assert (row["id"], row["payment"], row["arrival"]) == ("o1", None, 2)
    timeline = Log(warehouse, shop.paid).read_timeline()
    assert [a.rows for a in timeline] == [0, 1, 1]
    assert (timeline[2].min_event_time, timeline[2].max_event_time) == (0, 0)
    more = ScenarioArrival(((30 * SECOND, "a", "o2"),), 4)
    replace(shop, given=[[*orders, more], payments]).ingest_bases(warehouse)
    list(ingest(warehouse, connector, batch=None))
    stream(warehouse, asset)
    assert incremental(warehouse, asset) is None
    assert check_parity(warehouse, asset).is_equal


def stream(warehouse: Warehouse, asset: WindowedTransform) -> None:
    """Process all arrivals in a streaming query."""
    assert continuous.start_query(warehouse, asset, available_now=True).awaitTermination(120)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_erasure_that_is_killed_anywhere_is_completed_by_the_next(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    shop = Shop.of(draw(chance), "left")
    shop.fill(warehouse)
    rows = warehouse.load_rows("paid_log").to_pylist()
    paired = sorted({r["payment"] for r in rows} - {None})
    others = {r["id"] for r in warehouse.load_rows("payments_log").to_pylist()} - {*paired}
    erased, points = set[str](), list[str]()
    # The first fail points are those of the base.
    for number, id_ in enumerate([*paired, *sorted(others)][:6], 3):
        with monkeypatch.context() as dying:
            for module in (deletion, recovery):
                dying.setattr(module, "pass_fail_point", killed_after(number, points))
            with suppress(KeyboardInterrupt):
                shop.erase(warehouse, PAYMENTS, id_)
        shop.erase(warehouse, PAYMENTS, id_)
        erased.add(id_)
        shop.check(warehouse, erased)
    assert {"erased", "erasure", "copies", "letters"} <= set(points), points


def killed_after(number: int, points: list[str]) -> Callable[[str], None]:
    """Return a function that ends an erasure at a fail point, after it has passed some."""
    passed = list[str]()

    def reach(point: str) -> None:
        passed.append(point)
        if len(passed) > number:
            points.append(point)
            raise KeyboardInterrupt

    return reach


def asset(name: str, source: Source, window: Window, **given: Any) -> WindowedTransform:  # noqa: ANN401
    options: dict[str, Any] = {
        "aggregates": {"n": agg.count(), "newest": agg.max("id")},
        "allowed_lateness": 0,
        **given,
    }
    return WindowedTransform(
        name=name,
        source=source,
        keys=("k",),
        window=window,
        description="",
        function=same,
        **options,
    )


@dataclass(frozen=True)
class Chains:
    """Chains of an asset and of a roll-up, and everything that may be derived from them.

    Args:
        stages: derived sources and assets, each after those that it reads.
    """

    stages: Sequence[DerivedSource | Definition]

    @classmethod
    def of(cls, window: Window) -> "Chains":
        orders = asset("orders_by_key", ORDERS, window, allowed_lateness=SECOND)
        final = chain(name="final", of=orders)
        late: dict[str, Any] = {
            "allowed_lateness": 3600 * SECOND,
            "aggregates": {"windows": agg.count(), "n": agg.sum("n")},
        }
        changes = chain(name="changes", of=orders, rows="changes")
        most = {"aggregates": {"n": agg.max("n"), "newest": agg.max("newest")}}
        of_final = asset("of_final", final, Tumbling("8 seconds"), **most)
        paid = join(
            name="paid",
            left=final,
            right=PAYMENTS,
            on=["k"],
            within=Between("-2 seconds", "3 seconds"),
            how="left",
            rename={"payments.t": "paid_at"},
        )
        located = asof_join(
            name="located",
            left=PAYMENTS,
            right=ORDERS,
            on=["k"],
            how="left",
            deleted="id LIKE '%3' OR id LIKE '%5'",
            rename={f"orders.{c}": f"order_{c}" for c in ("t", "id")},
        )
        of_changes = asset("of_changes", changes, Tumbling("8 seconds"), **late)
        second = chain(name="second", of=of_final)
        stages = [orders, final, changes, of_final, of_changes, second]
        if window.merges:
            return cls(stages)
        minutes = rollup(of=orders, name="minutes", window=Tumbling("12 seconds"))
        every = union(name="every", of=[paid, located])
        return cls([*stages, minutes, chain(name="of_minutes", of=minutes), paid, located, every])

    @classmethod
    def draw(cls, chance: random.Random, size: int = 7) -> "Chains":
        """Return random unions, chains, assets and roll-ups over orders and payments."""
        sources: list[Source] = [ORDERS, PAYMENTS]
        assets, stages = list[Definition](), list[DerivedSource | Definition]()
        for number in range(size):
            name = f"stage_{number}"
            tumbling = [each for each in assets if isinstance(each.window, Tumbling)]
            countable = [each for each in tumbling if each.rolled_up_name is None]
            possible = ["asset", "union", *(["chain"] * 2 if assets else [])]
            kind = chance.choice([*possible, *(["roll-up"] if countable else [])])
            if kind == "union":
                stage = union(name=name, of=chance.sample(sources, 2))
            elif kind == "chain":
                stage = chain(name=name, of=chance.choice(assets))
            elif kind == "roll-up":
                base = chance.choice(countable)
                stage = rollup(of=base, name=name, window=Tumbling("12 seconds"))
            else:
                source = chance.choice(sources)
                text = "id" if "id" in source.columns else "newest"
                values = {"n": agg.count(), "newest": agg.max(text)}
                window = chance.choice([Tumbling("4 seconds"), Session("2 seconds")])
                stage = asset(name, source, window, aggregates=values)
            stages.append(stage)
            if isinstance(stage, DerivedSource):
                sources.append(stage)
            else:
                assets.append(stage)
        return cls(stages)

    @property
    def derived(self) -> list[DerivedSource]:
        return [each for each in self.stages if isinstance(each, DerivedSource)]

    @property
    def assets(self) -> list[Definition]:
        return [each for each in self.stages if not isinstance(each, DerivedSource)]

    def fill(self, warehouse: Warehouse, given: Given) -> None:
        for base, arrivals in zip((ORDERS, PAYMENTS), given, strict=True):
            list(ingest(warehouse, MemoryConnector(base, arrivals), batch=None))
        for each in self.stages:
            if isinstance(each, DerivedSource):
                connector = DerivedConnector(each, warehouse.location, warehouse.database)
                list(ingest(warehouse, connector, batch=None))
            else:
                incremental(warehouse, each)

    def erase(
        self, warehouse: Warehouse, source: Source, id_: str, *, dry_run: bool = False
    ) -> ErasureReport:
        own = [each for each in self.derived if reads(each, source)]
        names = {source.name, *(each.name for each in own)}
        assets = [each for each in self.assets if each.source.name in names]
        return erase_events(
            warehouse, source, assets, f"id = '{id_}'", derived=own, dry_run=dry_run
        )

    def check(self, warehouse: Warehouse) -> None:
        for source in self.derived:
            found = check_derived_parity(warehouse, source)
            assert found.is_equal, (source.name, found)
            assert erasures.find_unfinished(warehouse, source) == []
        for each in self.assets:
            assert check_parity(warehouse, each).is_equal, each.name
        sources = [ORDERS, PAYMENTS, *self.derived]
        assert table_check.find_damage(warehouse.path_of(""), sources, self.assets) == []


def reads(source: DerivedSource, other: Source) -> bool:
    return any(
        base.name == other.name or (isinstance(base, DerivedSource) and reads(base, other))
        for base in source.base_sources
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "window"), mostly_nightly([(2, Session("2 seconds")), (1, Tumbling("4 seconds"))])
)
def test_an_erasure_continues_through_chains_and_deletions(
    warehouse: Warehouse, seed: int, window: Window
) -> None:
    check_erasures(warehouse, Chains.of(window), draw(random.Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly([2, 0, 1, *range(3, 20)]))
def test_an_erasure_in_a_random_graph_leaves_nothing(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(seed)
    check_erasures(warehouse, Chains.draw(chance), draw(chance))


def check_erasures(warehouse: Warehouse, shop: Chains, given: Given) -> None:
    """Erase an event of each base from all tables, and check that no file contains it."""
    erased = set[str]()
    shop.fill(warehouse, [side[:-2] for side in given])
    for source, side in zip((ORDERS, PAYMENTS), given, strict=True):
        if not any(reads(each, source) for each in shop.derived):
            continue
        known = [row[2] for one in side[:-2] for row in one.rows]
        # A deletion leaves no trace in the rows of an as-of join.
        id_ = min(known, key=lambda id_: id_[-1] not in "35")
        planned = shop.erase(warehouse, source, id_, dry_run=True)
        done = shop.erase(warehouse, source, id_)
        assert done.events == 1
        changed = {place.table for place in done.places if place.what == "deleted"}
        assert changed <= {place.table for place in planned.places}
        erased.add(id_)
        shop.check(warehouse)
    # Everything continues.
    shop.fill(warehouse, given)
    shop.check(warehouse)
    for each in (ORDERS, PAYMENTS, *shop.derived):
        list(purge_old_files(warehouse, list_tables(each, shop.assets), time.time_ns() // 1000))
    place = Path(warehouse.path_of(""))
    assert found(place, "-of-ann-")
    assert found(place, *erased) == []


def test_an_erasure_of_a_chain_needs_its_asset(warehouse: Warehouse) -> None:
    sink = {"accumulation": "accumulating", "sink": KafkaSink("fives")}
    fives = asset("fives", ORDERS, Tumbling("5 seconds"), **sink)
    final = chain(name="final", of=fives)
    orders = [
        ScenarioArrival(((0, "a", "o1"), (SECOND, "a", "o2")), 1),
        ScenarioArrival(((20 * SECOND, "a", "o3"),), 2),
    ]
    shop = Chains([fives, final])
    shop.fill(warehouse, [orders, []])
    assert [row["newest"] for row in warehouse.load_rows(final.log_table).to_pylist()] == ["o2"]
    planned = shop.erase(warehouse, ORDERS, "o2", dry_run=True)
    report = shop.erase(warehouse, ORDERS, "o2")
    # The windows of the chain are not published to the topic of its asset.
    for sent in (planned.sent, report.sent):
        assert [(each.asset, each.total) for each in sent] == [("fives", 1)]
    assert operations.find_unfinished(warehouse.path_of("")) == []
    assert [row["newest"] for row in warehouse.load_rows(final.log_table).to_pylist()] == ["o1"]
    more = ScenarioArrival(((40 * SECOND, "b", "o4"),), 3)
    shop.fill(warehouse, [[*orders, more], []])
    rows = warehouse.load_rows(final.log_table).to_pylist()
    assert sorted(row["newest"] for row in rows) == ["o1", "o3"]
    for table in fives.own_tables:
        warehouse.drop_table(table)
    with pytest.raises(DataError, match="'final' is stale: 'fives' no longer has the run"):
        shop.erase(warehouse, ORDERS, "o1")
    assert warehouse.load_rows(ORDERS.log_table).num_rows == 3


def test_an_erasure_is_refused_if_a_definition_below_is_not_loaded(warehouse: Warehouse) -> None:
    moved = union(name="moved", of=[ORDERS, PAYMENTS])
    of_moved = asset("of_moved", moved, Tumbling("5 seconds"))
    arrivals = [ScenarioArrival(((0, "a", "o1"), (SECOND, "a", "o2")), 1)]
    shop = Chains([moved, of_moved])
    shop.fill(warehouse, [arrivals, arrivals])
    for known in (Chains([]), Chains([moved]), Chains([of_moved])):
        for dry_run in (True, False):
            with pytest.raises(DataError, match="Nothing was erased: '"):
                known.erase(warehouse, ORDERS, "o1", dry_run=dry_run)
    assert warehouse.load_rows(ORDERS.log_table).num_rows == 2
    # The tables of a rebuild that was not promoted have the events, too.
    side = moved.with_side_tables("rebuild")
    connector = DerivedConnector(side, warehouse.location, warehouse.database)
    list(ingest(warehouse, connector, batch=None))
    copies = shop.erase(warehouse, ORDERS, "o2", dry_run=True).removed
    assert sorted(copies) == sorted(side.own_tables)
    # A definition that reads another source now can't recompute the rows of the earlier one.
    elsewhere = Chains([moved, replace(of_moved, source=PAYMENTS)])
    with pytest.raises(DataError, match=r"'of_moved' \(of_moved, .*`tidemark drop of_moved`\."):
        elsewhere.erase(warehouse, ORDERS, "o1")
    graph = Graph.of_folder(warehouse.path_of("").rstrip("/"))
    with pytest.raises(DataError, match="First run `tidemark drop of_moved`"):
        check_droppable(graph, "source moved")
    drop_owner(warehouse, "asset of_moved")
    drop_owner(warehouse, "source moved")
    assert Chains([]).erase(warehouse, ORDERS, "o1").events == 1


def test_a_failed_erasure_is_unfinished_until_it_is_repeated(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_orders = asset("of_orders", ORDERS, Tumbling("5 seconds"))
    shop, folder = Chains([of_orders]), warehouse.path_of("").rstrip("/")
    shop.fill(warehouse, [[ScenarioArrival(((0, "a", "o1"), (SECOND, "a", "o2")), 1)], []])
    with monkeypatch.context() as failing:
        failing.setattr(deletion, "pass_fail_point", killed_after(3, []))
        with pytest.raises(KeyboardInterrupt):
            shop.erase(warehouse, ORDERS, "o1")
    (unfinished,) = operations.find_unfinished(folder)
    assert (unfinished.kind, unfinished.owner) == (operations.Kind.ERASE, "source orders")
    assert "o1" not in str(unfinished)
    assert shop.erase(warehouse, ORDERS, "o1").resumed == 1
    assert operations.find_unfinished(folder) == []
