"""`tidemark show`, `tap` and `trace` of sources and derived sources, without the engine."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark.store.event_log.steps import Step, TakenArrival
from tidemark.store.rows import INSTANT
from till.sources import orders, paid_orders

T0 = 1_767_225_600_000_000
MINUTE = 60_000_000
ARRIVALS = 5


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield a home with event logs of `orders` and `paid_orders`, in which no engine answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("TIDEMARK_DOMAINS", "till")
        patch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
        patch.setenv("COLUMNS", "200")
        patch.chdir(Path(__file__).parents[4])
        settings = Settings()
        write_log(settings, orders, [order_rows(n) for n in range(ARRIVALS)])
        pairs = [[{**row, "paid": None} for row in order_rows(n)[::2]] for n in range(ARRIVALS)]
        write_log(settings, paid_orders, pairs)
        letters = {"arrival": [1, 1], "position": [1, 0], "reason": ["second", "first"]}
        bodies = pa.array([b'{"order_id": "x"}', b'{"order_id": "y"}'])
        ids = pa.array(["lost", None], pa.string())
        table = pa.table({**letters, "bytes": bodies, "correlation_id": ids, "read_from": ["", ""]})
        write_deltalake(place(settings, "paid_orders_unjoined"), table)
        yield settings


def place(settings: Settings, table: str) -> str:
    return f"{settings.warehouse}/{settings.database}/{table}"


def order_rows(arrival: int) -> list[dict[str, Any]]:
    rng = Random(arrival)
    return [
        {
            "at": T0 + (arrival * 10 + n) * MINUTE,
            "order_id": f"{arrival}-{n}",
            "city": rng.choice(["Ulm", "Bern", None]),
            "position": n,
            "correlation_id": f"orders:{arrival}:{n}",
        }
        for n in range(rng.randint(1, 6))
    ]


def write_log(
    settings: Settings, source: Source, arrivals: Sequence[Sequence[Mapping[str, Any]]]
) -> None:
    """Write an event log with a timeline, and rows of an arrival that was never committed."""
    rows = [{**row, "arrival": n} for n, some in enumerate(arrivals) for row in some]
    rows.append({"at": T0, "order_id": "left over", "arrival": ARRIVALS, "position": 0})
    kinds = {
        "at": INSTANT,
        "order_id": pa.string(),
        "city": pa.string(),
        "arrival": pa.int64(),
        "position": pa.int64(),
        "correlation_id": pa.string(),
    }
    if source is paid_orders:
        kinds |= {"paid": pa.decimal128(8, 2), paid_orders.event_time: INSTANT}
        rows = [{**row, paid_orders.event_time: row["at"]} for row in rows]
    table = pa.Table.from_pylist([{"city": None, **row} for row in rows], pa.schema(kinds))
    write_deltalake(place(settings, source.log_table), table)
    timeline = [
        Arrival(n, T0 + n, None, None, len(some), None, None, 0, position_of(n))
        for n, some in enumerate(arrivals)
    ]
    write_deltalake(place(settings, source.timeline_table), timeline_rows(timeline))


def position_of(arrival: int) -> str:
    """Return the position of a step that takes the arrival of `orders` with the same number."""
    return Step("orders", {"orders": TakenArrival(arrival, "", "")}).to_position()


def shown(*arguments: str) -> list[str]:
    rows = json.loads(call("show", *arguments, "--json").stdout)
    return [row["order_id"] for row in rows]


@pytest.mark.parametrize("name", ["orders", "paid_orders"])
def test_events_of_a_source_are_shown_the_newest_arrival_first(name: str) -> None:
    every = shown(name, "--limit", "100")
    known = [r["order_id"] for n in range(ARRIVALS) for r in order_rows(n)]
    assert "left over" not in every
    assert set(every) <= set(known)
    arrivals = [int(order.split("-")[0]) for order in every]
    assert arrivals == sorted(arrivals, reverse=True)
    assert shown(name, "--limit", "3") == every[:3]
    assert shown(name, "--key", "order_id=2-0") == ["2-0"]
    ranged = shown(name, "--from", "2026-01-01T00:10", "--to", "2026-01-01T00:20")
    assert ranged == [order for order in every if order.startswith("1-")] != []
    assert "order_id" in call("show", name).stdout
    lines = call("show", name, "--limit", "100", "--csv").stdout.splitlines()
    assert len(lines) == len(every) + 1


def test_rows_without_part_in_a_join_are_shown() -> None:
    rows = json.loads(call("show", "paid_orders", "--late", "--json").stdout)
    assert [row["reason"] for row in rows] == ["first", "second"]
    assert '{"order_id": "x"}' in call("show", "paid_orders", "--late").stdout


def tapped(*arguments: str) -> list[Any]:
    lines = call("tap", *arguments, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("arrival", range(ARRIVALS))
def test_the_steps_of_an_arrival_are_shown(arrival: int) -> None:
    run = ("--arrival", str(arrival))
    taken = [each["row"]["order_id"] for each in tapped("paid_orders", "--step", "taken", *run)]
    assert taken == [row["order_id"] for row in order_rows(arrival)]
    events = [each["row"]["order_id"] for each in tapped("paid_orders", "--step", "events", *run)]
    assert events == taken[::2]
    unjoined = tapped("paid_orders", "--step", "unjoined", *run)
    assert [each["row"]["reason"] for each in unjoined] == (
        ["first", "second"] if arrival == 1 else []
    )
    assert [each["row"]["order_id"] for each in tapped("orders", "--step", "events", *run)] == taken


def test_the_newest_arrival_is_shown_by_default() -> None:
    found = tapped("orders", "--step", "events")
    assert {each["arrival"] for each in found} == {ARRIVALS - 1}
    cut = call("tap", "orders", "--step", "events", "--arrival", "0", "--limit", "1")
    assert "arrival 0, events: the first 1 row" in cut.stdout
    steps = {step["step"] for step in json.loads(call("tap", "paid_orders", "--json").stdout)}
    assert steps == {"taken", "events", "unjoined"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "orders", "--final"], "'orders' is a source, which has no windows"),
        (["show", "orders", "--late"], "`tidemark dead-letters show orders`"),
        (["show", "orders", "--key", "town=Ulm"], "There is no column of 'orders' 'town'"),
        (["show", "paid_orders", "--late", "--key", "city=Ulm"], "stored as JSON"),
        (["tap", "orders", "--step", "taken"], "Their steps are events, dead_letters"),
        (["tap", "orders", "--step", "events", "--arrival", "9"], "'orders' has no arrival 9"),
        (["tap", "orders", "--step", "events", "--commit-number", "1"], "is a source, which has"),
        (["tap", "payments", "--step", "events"], "`tidemark ingest payments` adds them"),
        (["trace", "orders:99:0"], "No arrival of 'orders', "),
        (["trace", "orders:1:0", "--source", "payments"], "No arrival of 'payments' has an event"),
    ],
)
def test_a_mistake_is_refused_without_the_engine(arguments: list[str], sentence: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize("known", ["orders:1:0", "lost"])
def test_the_engine_starts_only_for_a_known_event(known: str) -> None:
    result = call("trace", known)
    assert "No arrival of" not in result.stderr
    assert result.exit_code == 2
    assert "localhost:1" in result.stderr
