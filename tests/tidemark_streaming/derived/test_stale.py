"""Tables whose base has another history than the one that they were made from are stale.

Each test changes a base or a definition below something that was made from it. The node then
refuses to continue, names the cause, and equals its definition again after the commands that the
message names.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.data.orders import ORDERS, PAYMENTS
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionChangedError
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.change import rebuild as asset_rebuild
from tidemark.run.erase.erase import erase_events
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.integrity import table_check
from tidemark.store.lineage import Lineage, StaleError, WarehouseReader
from tidemark.store.operations import UnfinishedOperationError, find_unfinished
from tidemark.store.rows import to_dicts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.derived.rebuild import discard_rebuilt, promote_source, rebuild_source
from tidemark_streaming.ingest.future_watermark import lower_watermarks
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.snapshot.staleness import find_stale_asset, find_stale_source
from tidemark_streaming.snapshot.tables import Tables

SECOND = 1_000_000
YEAR = 365 * 86_400 * SECOND
RENAME = {"payments.t": "paid_at", "payments.v": "paid"}


def paid_orders(within: str = "5 seconds", orders: Source = ORDERS) -> DerivedSource:
    return join(
        name="paid_orders",
        left=orders,
        right=PAYMENTS,
        on=["k"],
        within=Between("0 seconds", within),
        how="left",
        allowed_lateness="1 second",
        rename=RENAME,
    )


@row_asset(source=ORDERS)
def kept_orders(orders: Any) -> Any:  # noqa: ANN401
    return orders


DERIVED = [
    paid_orders(),
    union(name="movements", of=[ORDERS, PAYMENTS]),
    asof_join(name="priced", left=ORDERS, right=PAYMENTS, on=["k"], how="left", rename=RENAME),
    kept_orders,
]


def asset(name: str, source: Source, lateness: int = 0) -> WindowedTransform:
    return WindowedTransform(
        name=name,
        description="",
        source=source,
        keys=("k",),
        window=Tumbling("5 seconds"),
        allowed_lateness=lateness * SECOND,
        aggregates={"n": agg.count(), "v": agg.sum("v")},
        function=lambda rows: rows,
    )


def arrive(warehouse: Warehouse, source: Source, *seconds: int) -> None:
    """Ingest one arrival with an event at each of these seconds."""
    rows = tuple((second * SECOND, "a", second % 1000) for second in seconds)
    last = (
        Log(warehouse, source).find_last_arrival()
        if warehouse.has_table(source.timeline_table)
        else None
    )
    past = [ScenarioArrival((), 0)] * (0 if last is None else last.arrival + 1)
    list(ingest(warehouse, MemoryConnector(source, [*past, ScenarioArrival(rows, len(past))])))


def take(warehouse: Warehouse, source: DerivedSource) -> int:
    """Ingest what is pending for a derived source. Return the number of arrivals."""
    connector = DerivedConnector(source, warehouse.location, warehouse.database)
    return sum(len(commit.arrivals) for commit in ingest(warehouse, connector, batch=None))


def take_again(warehouse: Warehouse, source: DerivedSource) -> None:
    for _ in rebuild_source(warehouse, source):
        pass
    promote_source(warehouse, source)


class KilledError(Exception):
    pass


class Copies:
    """Copies of tables of a warehouse in a local folder."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        self._place = Path(warehouse.path_of("").removeprefix("file://"))
        self._folder = folder

    def keep(self, *tables: str) -> None:
        for table in tables:
            shutil.copytree(self._place / table, self._folder / table)

    def restore(self, *tables: str) -> None:
        for table in tables:
            shutil.rmtree(self._place / table)
            shutil.copytree(self._folder / table, self._place / table)


def check_settled(warehouse: Warehouse, *nodes: DerivedSource | Definition) -> None:
    """Check that each node equals its definition, over the recorded arrivals of its bases."""
    for node in nodes:
        if isinstance(node, DerivedSource):
            take(warehouse, node)
            assert check_derived_parity(warehouse, node).is_equal, node.name
        else:
            incremental(warehouse, node)
            assert check_parity(warehouse, node).is_equal, node.name


# Several ingests and runs for each kind.
@pytest.mark.slow
@pytest.mark.parametrize("derived", mostly_nightly(DERIVED, 2), ids=lambda source: source.name)
def test_a_restored_base_makes_a_derived_source_and_its_asset_stale(
    warehouse: Warehouse, derived: DerivedSource, tmp_path: Path
) -> None:
    copies, hourly = Copies(warehouse, tmp_path), asset("hourly", derived)
    arrive(warehouse, ORDERS, 1, 2)
    arrive(warehouse, PAYMENTS, 3)
    copies.keep(*ORDERS.own_tables)
    arrive(warehouse, ORDERS, 8)
    assert take(warehouse, derived) >= 2
    incremental(warehouse, hourly)
    copies.restore(*ORDERS.own_tables)
    with pytest.raises(StaleError, match=r"'orders' ends with arrival 0, but its arrival 1 was"):
        take(warehouse, derived)
    # Another event gets the number of the lost arrival, and a later arrival follows.
    arrive(warehouse, ORDERS, 20)
    arrive(warehouse, ORDERS, 30)
    with pytest.raises(StaleError, match=r"'orders' has another arrival 1 than the one that was"):
        take(warehouse, derived)
    with pytest.raises(StaleError, match=f"'hourly' is stale: it reads '{derived.name}', which is"):
        incremental(warehouse, hourly)
    take_again(warehouse, derived)
    with pytest.raises(StaleError, match="Run `tidemark backfill hourly`"):
        incremental(warehouse, hourly)
    backfill(warehouse, hourly)
    check_settled(warehouse, derived, hourly)
    rows = to_dicts(warehouse.load_rows(derived.log_table, columns=["t", "k"]))
    times = {row["t"] for row in rows}
    assert 8 * SECOND not in times
    assert {20 * SECOND, 30 * SECOND} & times or derived.name in ("paid_orders", "priced")


def test_lowered_watermarks_make_everything_below_stale(warehouse: Warehouse) -> None:
    paid, hourly = paid_orders(), asset("hourly", ORDERS)
    hours = chain(name="hours", of=hourly)
    above = asset("above", paid)
    arrive(warehouse, ORDERS, 1, 2)
    arrive(warehouse, PAYMENTS, 3, 70 * YEAR // SECOND)
    arrive(warehouse, ORDERS, 9)
    arrive(warehouse, PAYMENTS, 10)
    arrive(warehouse, ORDERS, 80 * YEAR // SECOND)
    incremental(warehouse, hourly)
    for derived in (paid, hours):
        take(warehouse, derived)
    incremental(warehouse, above)
    plausible = replace(PAYMENTS, max_future_skew="1 hour")
    assert lower_watermarks(warehouse, plausible).first == 0
    with pytest.raises(StaleError, match=r"another arrival .* or its watermarks were lowered"):
        take(warehouse, paid)
    # The payments are not below the orders' asset.
    assert take(warehouse, hours) == 0
    assert lower_watermarks(warehouse, replace(ORDERS, max_future_skew="1 hour")).first == 2
    with pytest.raises(StaleError, match="'hourly' is stale: 'orders' has another arrival 2"):
        incremental(warehouse, hourly)
    with pytest.raises(StaleError, match="'hours' is stale"):
        take(warehouse, hours)
    backfill(warehouse, hourly)
    for derived in (paid, hours):
        take_again(warehouse, derived)
    backfill(warehouse, above)
    check_settled(warehouse, hourly, paid, hours, above)


def test_a_changed_derivation_is_refused_until_it_is_rebuilt(warehouse: Warehouse) -> None:
    narrow, wide = paid_orders("1 second"), paid_orders("8 seconds")
    arrive(warehouse, ORDERS, 1)
    arrive(warehouse, PAYMENTS, 6)
    take(warehouse, narrow)
    with pytest.raises(StaleError, match="'paid_orders' is stale: its definition has changed"):
        take(warehouse, wide)
    assert take(warehouse, narrow) == 0
    for _ in rebuild_source(warehouse, wide):
        pass
    # The published tables continue with the earlier definition until the promotion.
    arrive(warehouse, ORDERS, 7)
    assert take(warehouse, narrow) == 1
    arrive(warehouse, PAYMENTS, 30)
    promote_source(warehouse, wide)
    check_settled(warehouse, wide)
    assert [r["v"] for r in to_dicts(warehouse.load_rows(wide.log_table)) if r["paid"] == 6] == [1]
    with pytest.raises(StaleError, match="its definition has changed"):
        take(warehouse, narrow)
    assert not any(
        warehouse.has_table(table) for table in wide.with_side_tables("rebuild").own_tables
    )
    with pytest.raises(DataError, match="There is nothing to promote: 'paid_orders' was not"):
        promote_source(warehouse, wide)


@pytest.mark.slow
@pytest.mark.parametrize("derived", mostly_nightly(DERIVED, 2), ids=lambda source: source.name)
def test_rows_that_were_rebuilt_after_an_erasure_are_not_missing(
    warehouse: Warehouse, derived: DerivedSource
) -> None:
    """The rebuilt timeline counts rows without the erased ones, under the same arrival numbers."""
    folder = warehouse.path_of("").removeprefix("file://").rstrip("/")
    arrive(warehouse, PAYMENTS, 2, 4)
    arrive(warehouse, ORDERS, 1, 2, 3)
    arrive(warehouse, PAYMENTS, 40)
    arrive(warehouse, ORDERS, 41, 42)
    take(warehouse, derived)
    for second in (2, 41):
        erase_events(warehouse, ORDERS, [], f"v = {second}", derived=[derived])
        assert table_check.find_damage(folder, [ORDERS, derived], []) == []
        take_again(warehouse, derived)
        assert table_check.find_damage(folder, [ORDERS, derived], []) == []
        check_settled(warehouse, derived)


@pytest.mark.parametrize("lateness", [0, 4])
def test_another_lateness_is_refused_below_a_chain(warehouse: Warehouse, lateness: int) -> None:
    fives, changed = asset("fives", ORDERS, 2), asset("fives", ORDERS, lateness)
    hours, now = chain(name="hours", of=fives), chain(name="hours", of=changed)
    arrive(warehouse, ORDERS, 1, 12)
    incremental(warehouse, fives)
    take(warehouse, hours)
    arrive(warehouse, ORDERS, 3, 9, 17)
    with pytest.raises(StaleError, match="differs in allowed lateness"):
        incremental(warehouse, changed)
    with pytest.raises(StaleError, match="differs in allowed lateness"):
        erase_events(warehouse, ORDERS, [changed], "v = 9", derived=[hours])
    with pytest.raises(StaleError, match="'hours' is stale: its definition has changed"):
        take(warehouse, now)
    asset_rebuild.rebuild_tables(warehouse, changed)
    asset_rebuild.promote_tables(warehouse, changed)
    take_again(warehouse, now)
    check_settled(warehouse, changed, now)


# Two rebuilds, and several runs.
@pytest.mark.slow
@pytest.mark.parametrize("rows", ["final", "changes"])
def test_a_changed_definition_makes_an_asset_and_what_reads_it_stale(
    warehouse: Warehouse, rows: str
) -> None:
    fives = asset("fives", ORDERS)
    changed = replace(fives, keys=())
    arrive(warehouse, ORDERS, 1, 2)
    arrive(warehouse, ORDERS, 13)
    nodes, later = nodes_over(fives, rows), nodes_over(changed, rows)
    check_settled(warehouse, *nodes)
    # Another function continues from the tables.
    assert why_stale(warehouse, *nodes_over(replace(fives, function=kept), rows)) == []

    arrive(warehouse, ORDERS, 24)
    own, *others = why_stale(warehouse, *later)
    assert "'fives' is stale: its tables were made by another definition" in own
    assert "It differs in keys (k → none)" in own
    assert [text.partition(", which is stale: its tables were made")[0] for text in others] == [
        "'tens' is stale: it reads 'fives'",
        "'windows' is stale: it reads 'fives'",
    ]
    begun_later = chain(name="begun_later", of=changed, rows=rows)
    for node in (*later, begun_later):
        with pytest.raises(StaleError, match="differs in keys") as refused:
            progress(warehouse, node)
        assert why_stale(warehouse, node) == [f"{refused.value.stale}"]
    asset_rebuild.rebuild_tables(warehouse, changed)
    # The earlier definition continues until the promotion.
    assert len(why_stale(warehouse, *later)) == 3
    check_settled(warehouse, *nodes)

    asset_rebuild.promote_tables(warehouse, changed)
    windows = later[-1]
    assert isinstance(windows, DerivedSource)
    (text,) = why_stale(warehouse, *later)
    assert "changed windows that 'windows' had read" in text
    take_again(warehouse, windows)
    check_settled(warehouse, *later, begun_later)

    asset_rebuild.roll_back(warehouse, changed)
    assert len(why_stale(warehouse, *later)) == 3
    assert why_stale(warehouse, *nodes[:2]) == []


def kept(rows: Any) -> Any:  # noqa: ANN401
    return rows.where("v >= 0")


def nodes_over(fives: WindowedTransform, rows: str) -> Sequence[Definition | DerivedSource]:
    """Return an asset, a roll-up of it, and a chain of its windows."""
    tens = rollup(of=fives, name="tens", window=Tumbling("10 seconds"))
    return fives, tens, chain(name="windows", of=fives, rows=rows)


def progress(warehouse: Warehouse, node: Definition | DerivedSource) -> None:
    if isinstance(node, DerivedSource):
        take(warehouse, node)
    else:
        incremental(warehouse, node)


def why_stale(warehouse: Warehouse, *nodes: Definition | DerivedSource) -> list[str]:
    """Return why nodes are stale, as `tidemark status` shows it; nothing for the other nodes."""
    tables = Tables(warehouse.path_of("").removeprefix("file://").rstrip("/"))
    found = [
        find_stale_source(tables, node)
        if isinstance(node, DerivedSource)
        else find_stale_asset(tables, node)
        for node in nodes
    ]
    return [str(stale) for stale in found if stale is not None]


def test_a_process_with_fewer_columns_does_not_ingest_a_derived_source(
    warehouse: Warehouse,
) -> None:
    wider = replace(ORDERS, columns={**ORDERS.columns, "note": "STRING"})
    earlier, later = (union(name="both", of=[base, PAYMENTS]) for base in (ORDERS, wider))
    arrive(warehouse, ORDERS, 1)
    assert take(warehouse, earlier) == 1
    rows = ((2 * SECOND, "a", 2, "new"),)
    arrivals = [ScenarioArrival((), 0), ScenarioArrival(rows, 1)]
    list(ingest(warehouse, MemoryConnector(wider, arrivals)))
    with pytest.raises(DefinitionChangedError, match="'orders' has the column 'note', which the"):
        take(warehouse, earlier)
    assert take(warehouse, later) == 1
    notes = [row["note"] for row in to_dicts(warehouse.load_rows(later.log_table))]
    assert sorted(notes, key=str) == [None, "new"]


def test_a_roll_up_replaces_its_windows_if_its_base_was_restored(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    copies, fives = Copies(warehouse, tmp_path), asset("fives", ORDERS)
    tens = rollup(of=fives, name="tens", window=Tumbling("10 seconds"))
    arrive(warehouse, ORDERS, 1, 13)
    incremental(warehouse, fives)
    incremental(warehouse, tens)
    kept = [*ORDERS.own_tables, *(t for t in fives.own_tables if warehouse.has_table(t)), "runs"]
    copies.keep(*kept)
    arrive(warehouse, ORDERS, 14, 25)
    incremental(warehouse, fives)
    incremental(warehouse, tens)
    copies.restore(*kept)
    arrive(warehouse, ORDERS, 16, 17, 28)
    incremental(warehouse, fives)
    check_settled(warehouse, fives, tens)


def test_an_asset_is_stale_if_its_source_was_restored(warehouse: Warehouse, tmp_path: Path) -> None:
    copies, fives = Copies(warehouse, tmp_path), asset("fives", ORDERS)
    tens = rollup(of=fives, name="tens", window=Tumbling("10 seconds"))
    arrive(warehouse, ORDERS, 1, 9)
    copies.keep(*ORDERS.own_tables)
    arrive(warehouse, ORDERS, 3)
    incremental(warehouse, fives)
    incremental(warehouse, tens)
    copies.restore(*ORDERS.own_tables)
    arrive(warehouse, ORDERS, 19)
    arrive(warehouse, ORDERS, 29)
    with pytest.raises(StaleError, match="'fives' is stale: 'orders' has another arrival 1"):
        incremental(warehouse, fives)
    with pytest.raises(StaleError, match="'tens' is stale: it reads 'fives', which is stale"):
        incremental(warehouse, tens)
    version = warehouse.newest_version(ORDERS.log_table)
    with pytest.raises(StaleError, match="Nothing was changed"):
        erase_events(warehouse, ORDERS, [fives, tens], "v = 9")
    assert warehouse.newest_version(ORDERS.log_table) == version
    with pytest.raises(StaleError, match="'fives' is stale"):
        backfill(warehouse, fives, 0, 10 * SECOND)
    backfill(warehouse, fives)
    check_settled(warehouse, fives, tens)


POINTS = ["promoted_timeline", "promoted_begun", "promoted_log", "promoted_rows", "promoted_end"]


@pytest.mark.parametrize("point", mostly_nightly(POINTS))
@pytest.mark.slow
def test_a_killed_promotion_is_unfinished_until_it_is_repeated(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def die(reached: str) -> None:
        if reached == point:
            raise KilledError

    paid, folder = paid_orders(), warehouse.path_of("").removeprefix("file://").rstrip("/")
    hourly = asset("hourly", paid)
    arrive(warehouse, ORDERS, 1, 2)
    arrive(warehouse, PAYMENTS, 3)
    take(warehouse, paid)
    incremental(warehouse, hourly)
    arrive(warehouse, ORDERS, 30)
    for _ in rebuild_source(warehouse, paid):
        pass
    with monkeypatch.context() as dying:
        dying.setattr("tidemark_streaming.derived.rebuild.pass_fail_point", die)
        with pytest.raises(KilledError):
            promote_source(warehouse, paid)
    (operation,) = find_unfinished(folder)
    assert operation.command == "tidemark rebuild paid_orders --promote"
    # Tables between two steps are not damage.
    assert table_check.find_damage(folder, [ORDERS, PAYMENTS, paid], [hourly]) == []
    for work in (take, discard_rebuilt):
        with pytest.raises(UnfinishedOperationError, match="The tables of source paid_orders are"):
            work(warehouse, paid)
    with pytest.raises(UnfinishedOperationError):
        incremental(warehouse, hourly)
    promoted = promote_source(warehouse, paid)
    assert find_unfinished(folder) == []
    assert table_check.find_damage(folder, [ORDERS, PAYMENTS, paid], [hourly]) == []
    assert Lineage(WarehouseReader(warehouse)).of_asset(hourly) is not None
    backfill(warehouse, hourly)
    check_settled(warehouse, paid, hourly)
    assert len(Log(warehouse, paid).read_timeline()) == promoted.arrivals
    assert promoted.stale == ["hourly"]
