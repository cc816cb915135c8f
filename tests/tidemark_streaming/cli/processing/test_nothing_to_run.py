"""The reason why a run has nothing to do, without the engine."""

from pathlib import Path

import pytest
from deltalake import write_deltalake

from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark.store.event_log.steps import Step, TakenArrival
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.processing.run import explain_no_run
from till.sources import movements, orders, paid_orders, payments
from till.transforms import movements_hourly, unpaid_hourly


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "till")
    return Home()


def arrive(home: Home, source: Source, count: int, taken: dict[str, int] | None = None) -> None:
    """Write a timeline with some arrivals, of which the newest has taken arrivals of bases."""
    base = next(iter(taken or {"": 0}))
    bases = {name: TakenArrival(number, "", "") for name, number in (taken or {}).items()}
    position = Step(base, bases).to_position() if taken else "{}"
    arrivals = [Arrival(n, n, None, None, 1, 0, 0, 0, position) for n in range(count)]
    folder = f"{home.settings.warehouse}/{home.settings.database}"
    write_deltalake(f"{folder}/{source.timeline_table}", timeline_rows(arrivals))


@pytest.mark.parametrize(
    ("asset", "base"), [(unpaid_hourly, "orders"), (movements_hourly, "orders")]
)
def test_without_arrivals_the_source_to_ingest_is_named(
    home: Home, asset: Definition, base: str
) -> None:
    assert f"`tidemark ingest {base}` adds them" in explain_no_run(home, asset)
    arrive(home, orders, 1)
    source = asset.source.name
    advice = f"has not taken 1 arrival of '{base}' yet: `tidemark ingest {source}`"
    assert advice in explain_no_run(home, asset)


@pytest.mark.parametrize(("asset", "source"), [(unpaid_hourly, paid_orders)])
def test_arrivals_that_a_derived_source_has_not_taken_are_counted(
    home: Home, asset: Definition, source: Source
) -> None:
    arrive(home, orders, 4)
    arrive(home, payments, 2)
    arrive(home, source, 3, {"orders": 0, "payments": 1})
    named = explain_no_run(home, asset)
    assert f"has processed all arrivals of '{source.name}', but" in named
    assert "has not taken 3 arrivals of 'orders' yet" in named


def test_an_asset_that_has_processed_everything_is_up_to_date(home: Home) -> None:
    arrive(home, orders, 2)
    arrive(home, payments, 1)
    arrive(home, movements, 3, {"orders": 1, "payments": 0})
    assert "is up to date: it has processed all arrivals" in explain_no_run(home, movements_hourly)
