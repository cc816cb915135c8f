"""The commands on derived sources: ingest, run, compare, end, erase and drop them.

Among them are the commands of the pages `joins.md` and `chains.md`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from helpers.processes.commands import call, surround
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse

# Dozens of commands, each on the state that the ones before it left.
pytestmark = pytest.mark.slow

ORDERS = [
    {"at": "2026-01-01T10:00:00Z", "order_id": "1", "city": "Ulm"},
    {"at": "2026-01-01T10:05:00Z", "order_id": "2", "city": "Ulm"},
    {"at": "2026-01-01T10:06:00Z", "order_id": "3", "city": "Bern"},
]
PAYMENTS = [
    {"at": "2026-01-01T10:30:00Z", "order_id": "1", "amount": 5.5},
    {"at": "2026-01-01T11:10:00Z", "order_id": "2", "amount": 6},
    {"at": None, "order_id": "3", "amount": 7},
]


@pytest.fixture(scope="module")
def till(engine: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield the settings of a home whose orders and payments have landed."""
    landing = tmp_path_factory.mktemp("landing")
    for name, rows in (("orders", ORDERS), ("payments", PAYMENTS)):
        (landing / name).mkdir()
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (landing / name / "1.json").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[3])
        own = {"landing": str(landing), "database": f"till_{uuid4().hex[:12]}"}
        surround(patch, engine.model_copy(update=own))
        patch.setenv("TIDEMARK_DOMAINS", "till")
        patch.setenv("COLUMNS", "100")
        yield Settings()


def done(*arguments: str) -> Any:  # noqa: ANN401
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_derived_sources_are_ingested_compared_and_dropped(till: Settings, spark: Any) -> None:  # noqa: ANN401
    early = call("parity", "paid_orders")
    assert early.exit_code == 2
    assert "run `tidemark ingest paid_orders`" in early.stderr
    for source in ("orders", "payments"):
        done("ingest", source, "--json")
    for source in ("paid_orders", "movements", "located_payments"):
        assert done("ingest", source, "--json")["arrivals"] == 2
    store = Warehouse(spark, till.warehouse, till.database)
    pairs = store.load_rows("paid_orders_log").to_pylist()
    assert [(r["order_id"], str(r["paid"])) for r in pairs] == [("1", "5.50")]
    (unjoined,) = store.load_rows("paid_orders_unjoined").to_pylist()
    assert unjoined["reason"] == "no_event_time in payments"
    assert json.loads(unjoined["bytes"]) == {"at": None, "order_id": "3", "amount": 7.0}
    (counted,) = done("dead-letters", "list", "paid_orders", "--json")
    assert (counted["reason"], counted["letters"]) == ("no_event_time in payments", 1)
    assert "The unjoined rows of 'paid_orders' can't be replayed" in (
        call("dead-letters", "replay", "paid_orders", "--all").stderr
    )
    found = {source["name"]: source for source in done("status", "--json")["sources"]}
    assert (found["paid_orders"]["arrivals"], found["paid_orders"]["unjoined"]) == (2, 1)

    refused = call("close", "paid_orders", "--yes")
    assert refused.exit_code == 2
    assert "'paid_orders' is computed from other sources, and ends" in refused.stderr
    for source in ("orders", "payments"):
        done("close", source, "--yes", "--json")
    for source in ("paid_orders", "movements", "located_payments"):
        assert done("ingest", source, "--json")["arrivals"] == 2
    located = store.load_rows("located_payments_log").to_pylist()
    assert sorted((r["order_id"], str(r["amount"]), r["city"]) for r in located) == [
        ("1", "5.50", "Ulm"),
        ("2", "6.00", "Ulm"),
    ]

    rows = store.load_rows("paid_orders_log").to_pylist()
    assert sorted((r["order_id"], str(r["paid"])) for r in rows) == [
        ("1", "5.50"),
        ("2", "None"),
        ("3", "None"),
    ]
    for asset in ("unpaid_hourly", "movements_hourly"):
        done("run", asset, "--json")
        assert done("parity", asset, "--json")["equal"]
    windows = store.load_rows("unpaid_hourly").to_pylist()
    assert sorted((r["city"], r["orders"], r["unpaid"]) for r in windows) == [
        ("Bern", 1, 1),
        ("Ulm", 2, 1),
    ]
    assert done("ingest", "payments_in_cents", "--json")["arrivals"] == 2
    cents = store.load_rows("payments_in_cents_log").to_pylist()
    assert sorted((r["order_id"], r["cents"]) for r in cents) == [
        ("1", 550),
        ("2", 600),
        ("3", 700),
    ]
    counts = {"paid_orders": 4, "movements": 6, "located_payments": 3, "payments_in_cents": 3}
    for source, number in counts.items():
        report = done("parity", source, "--json")
        assert report["equal"]
        assert report["rows"] == number

    check_traces()
    refused = call("erase", "paid_orders", "--where", "order_id = '1'", "--yes")
    assert refused.exit_code == 2
    assert "`tidemark erase orders --where ...`" in refused.stderr
    where = ("--where", "amount = 5.5")
    report = done("erase", "payments", *where, "--yes", "--json")["erased"]
    changed = {(p["table"], p["what"]): p["rows"] for p in report["places"]}
    assert (
        changed.items()
        >= {
            ("payments_log", "deleted"): 1,
            ("paid_orders_log", "deleted"): 1,
            ("paid_orders_log", "added"): 1,
            ("movements_log", "deleted"): 1,
            ("unpaid_hourly", "recomputed"): 2,
        }.items()
    )
    rows = store.load_rows("paid_orders_log").to_pylist()
    assert sorted((r["order_id"], r["paid"]) for r in rows) == [
        ("1", None),
        ("2", None),
        ("3", None),
    ]
    windows = store.load_rows("unpaid_hourly").to_pylist()
    assert sorted((r["city"], r["orders"], r["unpaid"]) for r in windows) == [
        ("Bern", 1, 1),
        ("Ulm", 2, 2),
    ]
    for name in (
        *("unpaid_hourly", "movements_hourly", "paid_orders", "movements"),
        *("located_payments", "payments_in_cents"),
    ):
        assert done("parity", name, "--json")["equal"]
    refused = call("drop", "paid_orders", "--yes")
    assert refused.exit_code == 2
    assert "First run `tidemark drop unpaid_hourly`." in " ".join(refused.stderr.split())
    done("drop", "unpaid_hourly", "--yes", "--json")
    assert len(done("drop", "paid_orders", "--yes", "--json")["dropped"]) == 3
    done("ingest", "paid_orders", "--json")
    assert done("parity", "paid_orders", "--json")["rows"] == 4


def check_traces() -> None:
    """Check that a payment is followed into the join, and the pair back to both events."""
    traced = {each["source"]: each for each in done("trace", "payments:0:0", "--json")}
    derived = {"paid_orders", "movements", "located_payments", "payments_in_cents"}
    assert traced.keys() == {"payments", *derived}
    pair = traced["paid_orders"]
    assert pair["correlation_id"] == "orders:0:0"
    assert [(o["source"], o["arrival"], o["event"]["at"]) for o in pair["origins"]] == [
        ("orders", 0, ORDERS[0]["at"]),
        ("payments", 0, PAYMENTS[0]["at"]),
    ]
    assert all(o["read_from"].endswith("1.json#0") for o in pair["origins"])
    (fate,) = pair["assets"]
    assert (fate["asset"], fate["places"][0]["in_row"]) == ("unpaid_hourly", True)
    (origin,) = traced["movements"]["origins"]
    assert (origin["source"], origin["position"]) == ("payments", 0)
    drawn = " ".join(call("trace", "payments:0:2").stdout.split())
    assert "takes no part: no_event_time in payments" in drawn
    assert "computed from" in drawn


def test_a_chain_is_ingested_and_compared(till: Settings, spark: Any) -> None:  # noqa: ANN401
    done("ingest", "orders", "--json")
    done("close", "orders", "--yes", "--json")
    idle = call("ingest", "hours")
    assert "windows that 'orders_hourly' has published" in " ".join(idle.stderr.split())
    done("run", "orders_hourly", "--json")
    assert done("ingest", "hours", "--json")["arrivals"] == 2
    done("run", "busiest_hours", "--json")
    assert done("parity", "busiest_hours", "--json")["equal"]
    report = done("parity", "hours", "--json")
    assert (report["equal"], report["rows"]) == (True, 2)
    days = Warehouse(spark, till.warehouse, till.database).load_rows("busiest_hours").to_pylist()
    assert sorted((d["city"], d["busiest"]) for d in days) == [("Bern", 1), ("Ulm", 2)]
    refused = call("drop", "orders_hourly", "--yes")
    assert refused.exit_code != 0
    told = " ".join(refused.stderr.split())
    assert "First run `tidemark drop busiest_hours`, then `tidemark drop hours`." in told
    report = done("erase", "orders", "--where", "city = 'Ulm'", "--yes", "--json")["erased"]
    deleted = [place["table"] for place in report["places"] if place["what"] == "deleted"]
    assert "hours_log" in deleted
    report = done("parity", "hours", "--json")
    assert (report["equal"], report["rows"]) == (True, 1)
    assert done("ingest", "hours", "--json")["arrivals"] == 0


def test_a_changed_event_log_fails_parity(till: Settings, spark: Any) -> None:  # noqa: ANN401
    store = Warehouse(spark, till.warehouse, till.database)
    row = store.load_rows("movements_log").slice(0, 1)
    for _ in range(2):
        store.append_rows(row, "movements_log")
    result = call("parity", "movements", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["missing"], report["extra"]) == (0, 2)
    assert [d["kind"] for d in report["differences"]] == ["extra", "extra"]
    shown = call("parity", "movements")
    assert shown.exit_code == 1
    assert f"2 differences in {report['rows']} rows" in shown.stdout


def test_a_range_of_a_derived_source_is_refused(till: Settings) -> None:
    refused = call("parity", "movements", "--from", "2026-01-01")
    assert refused.exit_code == 2
    assert "has no windows" in refused.stderr
