"""Joins of many rows, and errors in a definition that only the first ingest detects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from helpers.suite.nightly import mostly_nightly
from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.base.instants import parse_instant
from tidemark.define.derived.asof_join import AsOfSource, asof_join
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark_streaming.connector import Chunk
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
FIRST, FAR = parse_instant("0001-06-01"), parse_instant("2099-01-01")
LEFT, RIGHT = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "k": "STRING", "id": "STRING"},
        event_time="t",
        watermark=BoundedOutOfOrderness("2 seconds"),
    )
    for name in ("orders", "payments")
)
RENAME = {"payments.t": "paid_at", "payments.id": "payment"}


def derived(warehouse: Warehouse, source: DerivedSource) -> DerivedConnector:
    return DerivedConnector(source, warehouse.location, warehouse.database)


class SizedConnector(MemoryConnector):
    """A connector whose arrivals have a size."""

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [replace(chunk, bytes=100) for chunk in super().list_pending(timeline)]


def many_joins(prefix: str) -> list[DerivedSource]:
    given: dict[str, Any] = {"left": LEFT, "right": RIGHT, "on": ["k"], "rename": RENAME}
    within = Between("-2 seconds", "3 seconds")
    return [
        join(name=f"{prefix}_pairs", within=within, how="full", **given),
        asof_join(name=f"{prefix}_priced", how="left", allowed_lateness="2 seconds", **given),
    ]


# All kinds of joins, each as many rows and as few.
@pytest.mark.nightly
@pytest.mark.slow
def test_many_rows_and_few_give_the_same_event_log(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows are planned and written in another way than few.

    The as-of join of many rows keeps a table of versions before 2 s. A left row then waits at 2 s,
    with a version at that time, and another one arrives, whose key has versions at 1 s and 3 s.
    """
    arrivals = [
        ScenarioArrival(
            tuple(
                (
                    None if n == 7 else (3 * number + n) * SECOND,
                    "ab"[(n + number // 2) % 2],
                    f"{number}.{n}",
                )
                for n in (3, 1, 2, 7, -4)
            ),
            number,
        )
        for number in range(4)
    ]
    few, many = many_joins("few"), many_joins("many")
    for known in (2, 4):
        for base in (LEFT, RIGHT):
            list(ingest(warehouse, SizedConnector(base, arrivals[:known]), batch=None))
        with monkeypatch.context() as patch:
            patch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
            patch.setattr(thresholds, "SMALL_BATCH_BYTES", -1)
            patch.setattr(thresholds, "STAGED_FILE_ROWS", 3)
            patch.setattr(thresholds, "INLINE_ROWS", 0)
            for source in many:
                list(ingest(warehouse, derived(warehouse, source), batch=None))
    for one, other in zip(few, many, strict=True):
        list(ingest(warehouse, derived(warehouse, one), batch=None))
        for table in ("log_table", "dead_letters_table", "timeline_table"):
            rows, same = (sorted_rows(warehouse, getattr(s, table)) for s in (one, other))
            assert rows == same
            assert rows
        if isinstance(other, AsOfSource):
            assert check_derived_parity(warehouse, other).is_equal
            assert warehouse.newest_version(other.versions_table) > 0


def test_rows_without_a_valid_time_have_the_reason_of_late_tables(warehouse: Warehouse) -> None:
    left, right = (replace(base, max_future_skew="1 hour") for base in (LEFT, RIGHT))
    times = {None: "no_event_time", FAR: "future_timestamp", FIRST: "invalid_timestamp", 0: None}
    rows = tuple((time, "a", str(time)) for time in times)
    for base in (left, right):
        list(ingest(warehouse, MemoryConnector(base, [ScenarioArrival(rows, 0)])))
    given: dict[str, Any] = {"left": left, "right": right, "on": ["k"], "rename": RENAME}
    within = Between("-2 seconds", "3 seconds")
    wanted = {f"{why} in {base.name}" for why in times.values() if why for base in (left, right)}
    for source in (join(name="paid", within=within, **given), asof_join(name="priced", **given)):
        list(ingest(warehouse, derived(warehouse, source)))
        unjoined = warehouse.load_rows(source.dead_letters_table)["reason"].to_pylist()
        assert sorted(unjoined) == sorted(wanted)


def test_one_row_can_end_the_waiting_of_many_which_are_estimated(warehouse: Warehouse) -> None:
    orders = [ScenarioArrival(tuple((n * SECOND, "a", str(n)) for n in range(1_000)), 0)]
    payments = [ScenarioArrival(((at * SECOND, "b", ""),), n) for n, at in enumerate((500, 2_000))]
    paid = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=Between("-100 seconds", "100 seconds"),
        how="left",
        rename=RENAME,
    )
    connector, estimated, settled = derived(warehouse, paid), list[int](), list[int]()
    for known in (1, 2):
        for base, given in ((LEFT, orders), (RIGHT, payments[:known])):
            list(ingest(warehouse, MemoryConnector(base, given), batch=None))
        timeline = Log(warehouse, paid).read_timeline() if known > 1 else []
        connector.read(warehouse.spark, connector.list_pending(timeline))
        estimated.append(connector.rows_to_read())
        (commit,) = ingest(warehouse, connector, batch=None)
        settled.append(commit.arrivals[-1].rows)
    # At first, all rows are new. The watermarks are two seconds behind.
    assert settled == [398, 602]
    assert estimated[0] == 1_001
    assert 602 <= estimated[1] <= 606


# Seven commits of three sources.
@pytest.mark.nightly
@pytest.mark.slow
def test_versions_that_are_kept_over_many_commits_are_those_of_the_event_log(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest version of a key may be old, and one that is too late is none."""

    def arrivals(behind: int, *rows: tuple[int, int, str]) -> list[ScenarioArrival]:
        """Return seven arrivals: a row of key b every few seconds, and others by arrival."""
        frequent = [(n, 10 * n + s - behind, "b") for n in range(7) for s in range(1, 6)]
        return [
            ScenarioArrival(
                tuple((s * SECOND, k, f"{k}{s}") for at, s, k in (*frequent, *rows) if at == n), n
            )
            for n in range(7)
        ]

    # Versions are kept up to the watermark of the left base, so a version may be too late before it
    # is kept.
    left = arrivals(10, (0, 2, "a"), (5, 53, "c"), (5, 54, "a"), (6, 64, "a"), (6, 64, "c"))
    right = arrivals(0, (0, 1, "a"), (1, 12, "c"), (3, 20, "c"))
    few, many = (many_joins(prefix)[1] for prefix in ("plain", "kept"))
    monkeypatch.setattr(thresholds, "SMALL_BATCH_ROWS", 0)
    kept = list[int]()
    for known in range(1, 8):
        for base, given in ((LEFT, left), (RIGHT, right)):
            list(ingest(warehouse, MemoryConnector(base, given[:known]), batch=None))
        list(ingest(warehouse, derived(warehouse, many), batch=None))
        assert isinstance(many, AsOfSource)
        if warehouse.has_table(many.versions_table):
            kept.append(warehouse.newest_version(many.versions_table))
    assert len({*kept}) > 2
    list(ingest(warehouse, derived(warehouse, few), batch=None))
    versions = {
        (row["id"], row["payment"])
        for row in warehouse.load_rows(many.log_table).to_pylist()
        if row["k"] != "b"
    }
    assert versions >= {("a2", "a1"), ("c53", "c12"), ("a54", "a1")}
    assert sorted_rows(warehouse, many.log_table) == sorted_rows(warehouse, few.log_table)


def sorted_rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    rows = warehouse.load_rows(table).to_pylist()
    for row in rows:
        # Each ingest draws the identities of its arrivals.
        row.pop("arrival_id", None)
        row.pop("follows", None)
    return sorted(rows, key=lambda row: (row["arrival"], row.get("position", 0)))


@pytest.mark.parametrize(
    "condition", mostly_nightly(["CAST(l.id AS INT) > 1", "l.amount > 1", "l.id >"])
)
def test_a_condition_that_can_not_be_computed(warehouse: Warehouse, condition: str) -> None:
    source = join(
        name="paid",
        left=LEFT,
        right=RIGHT,
        on=["k"],
        within=Between("0 seconds", "1 second"),
        rename=RENAME,
        where=condition,
    )
    for base in (LEFT, RIGHT):
        arrival = ScenarioArrival(((0, "a", "x"),), 0)
        list(ingest(warehouse, MemoryConnector(base, [arrival])))
    with pytest.raises(DataError, match="The rows of 'paid' can't be computed") as refused:
        list(ingest(warehouse, derived(warehouse, source), batch=None))
    assert f"Correct where={condition!r}" in str(refused.value)
    assert not warehouse.has_table(source.timeline_table)


def test_a_deletion_that_can_not_be_computed(warehouse: Warehouse) -> None:
    source = asof_join(
        name="priced", left=LEFT, right=RIGHT, on=["k"], rename=RENAME, deleted="op = 'D'"
    )
    for base in (LEFT, RIGHT):
        list(ingest(warehouse, MemoryConnector(base, [ScenarioArrival(((0, "a", "x"),), 0)])))
    with pytest.raises(DataError, match="The rows of 'priced' can't be computed") as found:
        list(ingest(warehouse, derived(warehouse, source), batch=None))
    wanted = """Correct deleted="op = 'D'", which is SQL over the columns of the right source."""
    assert wanted in str(found.value)
