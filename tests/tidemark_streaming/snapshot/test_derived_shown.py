"""`tidemark status`, the live page and the metrics show derived sources, without an engine."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from helpers.data.tables import arrive, position_of
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark_streaming.monitor import page
from tidemark_streaming.monitor.metrics import METRICS
from tidemark_streaming.monitor.overview import Monitor
from till.sources import paid_orders


def test_a_join_is_shown_with_its_lag_and_its_unjoined_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "till")
    settings = Settings()
    arrive(settings, "orders", 0, 2)
    arrive(settings, "payments", 0, 1)
    steps = [{"orders": 0}, {"orders": 0, "payments": 0}, {"orders": 1, "payments": 0}]
    positions = [
        position_of(settings, paid_orders, base, **taken)
        for base, taken in zip(("orders", "payments", "orders"), steps, strict=True)
    ]
    arrive(settings, "paid_orders", 0, 2, positions=positions)
    unjoined = pa.table({"arrival": [1, 2], "position": [0, 0]})
    write_deltalake(f"{settings.warehouse}/{settings.database}/paid_orders_unjoined", unjoined)

    result = call("status", "--json")
    assert result.exit_code == 0, result.stderr
    sources = {each["name"]: each for each in json.loads(result.stdout)["sources"]}
    joined = sources["paid_orders"]
    assert joined["lag_arrivals"] == {"orders": 1, "payments": 1}
    assert (joined["unjoined"], joined["dead_letters"]) == (2, 0)
    assert sources["movements"]["lag_arrivals"] == {"orders": 3, "payments": 2}
    assert sources["orders"]["lag_arrivals"] == {}
    shown = " ".join(call("status").stdout.split())
    lag = "paid_orders has not taken 1 arrival of orders and 1 arrival of payments yet"
    assert f"{lag}: `tidemark ingest paid_orders`." in shown
    rows = "2 rows of its bases take no part in paid_orders"
    assert f"{rows}: `tidemark dead-letters list paid_orders` shows why." in shown
    assert "not in the event log" not in shown

    overview = Monitor(settings).read()
    on_page = {
        each["name"]: each for each in page.create_page_data(overview, "tidemark", 1)["sources"]
    }
    assert on_page["paid_orders"]["bases"] == [("orders", 1), ("payments", 1)]
    assert (on_page["paid_orders"]["unjoined"], on_page["orders"]["bases"]) == (2, [])
    samples = {m.name: dict(m.samples(overview)) for m in METRICS}
    assert samples["tidemark_source_lag_arrivals"]["paid_orders", "payments"] == 1
    assert samples["tidemark_source_unjoined_rows"]["paid_orders",] == 2
    assert ("orders",) not in samples["tidemark_source_unjoined_rows"]
    assert samples["tidemark_source_dead_letters"]["paid_orders",] == 0
