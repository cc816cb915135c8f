"""The test kit on users' transforms: correct ones pass, wrong ones are reported and drawn."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from kiosk.transforms import believed, numbered, orders_per_day, orders_per_hour, takings
from tidemark_streaming import testing
from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.read.reader import ScenarioError
from tidemark_streaming.testing import Trials
from tidemark_streaming.testing.trial import random_cuts
from till.transforms import unpaid_hourly

EARLY = {"at": "2026-01-01 09:10", "shop": "york-1", "amount": Decimal("2.50")}
OTHER = {"at": "2026-01-01 09:20", "shop": "york-2", "amount": "4"}
FREE = {"at": "2026-01-01 09:30", "shop": "york-1", "amount": 0}
LATE = {"at": "2026-01-01 09:59", "shop": "york-1", "amount": 1.25}
NOON = {"at": "2026-01-01 12:00", "shop": "leeds-1", "amount": 3}
ARRIVALS = [[EARLY, OTHER, FREE], [{**NOON, "at": "2026-01-01 10:30"}], [LATE], [NOON], [EARLY]]
"""The watermark is at 10:20 when LATE arrives, and at 11:50 when EARLY arrives again."""
YORK = {"window_start": "2026-01-01 09:00", "town": "YORK"}


# Many runs.
@pytest.mark.slow
def test_a_transform_gives_the_expected_results_in_any_cut(tidemark_scenario: Trials) -> None:
    trial = tidemark_scenario(orders_per_hour, ARRIVALS).expect(
        windows=[
            {**YORK, "orders": 3, "taken": Decimal("7.75"), "most": "4", "timing": "LATE"},
            {"window_start": "2026-01-01 10:00", "town": "LEEDS", "orders": 1},
            {"window_start": "2026-01-01 12:00", "town": "LEEDS", "taken": 3, "final": True},
        ],
        panes=[
            {**YORK, "pane": 0, "timing": "ON_TIME", "orders": 2},
            {**YORK, "pane": 1, "retraction": True, "orders": 2},
            {**YORK, "pane": 1, "retraction": False, "orders": 3},
            {"town": "LEEDS", "orders": 1},
            {"town": "LEEDS", "orders": 1},
        ],
        late=[{"at": "2026-01-01 09:10", "shop": "york-1", "lateness_seconds": 9600}],
    )
    assert [row["town"] for row in trial.windows] == ["YORK", "LEEDS", "LEEDS"]
    assert trial.panes[0]["taken"] == "6.50"
    assert trial.late[0]["watermark"] == "2026-01-01T11:50:00Z"
    trial.same_in_any_cut(seed=3, cuts=1)


# It computes the join in each of three ways.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_transform_of_a_join_has_the_arrivals_of_both_sources(tidemark_scenario: Trials) -> None:
    order = {"at": "2026-01-01 10:00", "order_id": "1", "city": "Ulm"}
    paid = {"at": "2026-01-01 10:30", "order_id": "1", "amount": 5}
    trial = tidemark_scenario(
        unpaid_hourly,
        [
            {"source": "orders", "rows": [order, {**order, "order_id": "2"}]},
            {"source": "payments", "rows": [paid]},
        ],
    ).expect(windows=[{"city": "Ulm", "orders": 2, "unpaid": 1}])
    with pytest.raises(AssertionError, match="computed from orders and payments"):
        trial.expect(windows=[])
    trial.same_in_any_cut(cuts=1)


def test_an_unexpected_result_is_reported_and_drawn(tidemark_scenario: Trials) -> None:
    trial = tidemark_scenario(orders_per_hour, [[EARLY, OTHER]])
    with pytest.raises(AssertionError) as caught:
        trial.expect(windows=[{**YORK, "orders": 3, "taken": "6.5", "most": "4.0"}])
    said = str(caught.value)
    assert said.startswith("orders_per_hour is not as expected:\n")
    assert "│ orders │ 3        │ 2 " in said
    assert "taken │ 6.5" not in said
    assert "●york-1 ~ 2.50" in said
    assert "[=" in said
    scenario = tidemark_scenario.folder / "orders_per_hour-1.yaml"
    assert said.endswith(f"drawn: {scenario.with_suffix('.svg')}\nscenario: {scenario}")
    assert "<svg" in scenario.with_suffix(".svg").read_text()
    again = load_scenario(scenario)
    assert again.transform.name == "orders_per_hour"
    assert again.expect is not None


def test_a_transform_that_depends_on_the_cut_is_reported(tidemark_scenario: Trials) -> None:
    trial = tidemark_scenario(numbered, [[EARLY], [OTHER], [FREE]])
    with pytest.raises(AssertionError) as caught:
        trial.same_in_any_cut(cuts=0)
    said = str(caught.value)
    assert "numbered is not the same in runs of 1, 1, 1, 1 arrivals (seed 0):" in said
    assert "all at once" in said
    assert "│ sum    │ 3 " in said


def test_lookup_tables_of_a_transform_must_be_given(tidemark_scenario: Trials) -> None:
    prices = {
        "columns": {"item": "int", "price": "decimal(6,2)"},
        "rows": [{"item": 1, "price": 5}],
    }
    hour = {"window_start": "2026-01-01 09:00", "taken": 10}
    rows = [{"at": "2026-01-01 09:01", "item": n} for n in (1, 1, 2)]
    with pytest.raises(ScenarioError, match=r"add 'lookups', with .* \(prices\)"):
        tidemark_scenario(takings, [rows])
    tidemark_scenario(takings, [rows], lookups={"prices": prices}).expect(windows=[hour])


def test_a_source_without_an_end_leaves_its_newest_window_open(tidemark_scenario: Trials) -> None:
    arrivals = [[{"at": "2026-01-01 09:01"}], [{"at": "2026-01-01 10:12"}, {"at": "2027-01-01"}]]
    # Without a clock, no event can be ahead of it.
    tidemark_scenario(believed, arrivals, ends=False).expect(late=[])
    tidemark_scenario(believed, arrivals, ends=False, clock_start="2026-01-01 10:12").expect(
        windows=[{"window_start": "2026-01-01 09:00", "n": 1}],
        late=[{"at": "2027-01-01", "window_start": None}],
    )


@pytest.mark.parametrize(
    ("arrivals", "says"),
    [
        ([[{"when": 1}]], "'when' is not part of a row; allowed: at, shop, item, amount, tags."),
        ([[{"amount": "much"}]], "'much' is not a valid decimal(8,2) for column 'amount'."),
        ([[{"tags": ["a"]}]], "a scenario can't contain values of type ARRAY<STRING>"),
        ([{"tick": 1}], "'tick' is not an arrival; allowed: rows, watermark, clock."),
    ],
)
def test_invalid_arrivals_are_refused(
    tidemark_scenario: Trials, arrivals: list[list[dict[str, object]]], says: str
) -> None:
    with pytest.raises(ScenarioError, match=r"orders_per_hour-1.yaml:\d+: ") as caught:
        tidemark_scenario(orders_per_hour, arrivals)
    assert says in str(caught.value)


def test_expected_panes_without_accumulation_and_roll_ups_are_refused(
    tidemark_scenario: Trials,
) -> None:
    with pytest.raises(ScenarioError, match="'numbered' has no panes"):
        tidemark_scenario(numbered, []).expect(panes=[{"pane": 0}])
    with pytest.raises(ScenarioError, match=r"can run only a `windowed_asset` \(got a RollUp\)"):
        tidemark_scenario(orders_per_day, [])


SCENARIO = (Path(__file__).parents[2] / "kiosk" / "a-late-order.yaml").read_text()


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (
            "kiosk.transforms",
            "'kiosk.transforms' is not an asset: write MODULE:NAME, as in shop.trans",
        ),
        ("kiosk.none:a", "the module 'kiosk.none' can't be imported: No module named 'kiosk.none'"),
        ("kiosk.transforms:a", "has no 'a'; its transforms are orders_per_hour, takings, believed"),
        ("kiosk.transforms:orders", "can run only a `windowed_asset` (got a Source)."),
        ("kiosk.transforms:takings", "source 'priced' has lookup tables: add 'lookups', with"),
    ],
)
def test_an_asset_that_cannot_run_is_reported(tmp_path: Path, by: str, says: str) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(SCENARIO.replace("kiosk.transforms:orders_per_hour", by))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert says in str(caught.value)


def test_a_scenario_with_an_asset_and_a_transform_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(f"{SCENARIO}transform: {{}}\n")
    with pytest.raises(
        ScenarioError, match=":9: 'transform' is not part of a scenario of an asset"
    ):
        load_scenario(path)


def test_cuts_are_one_by_one_and_random_by_seed() -> None:
    assert random_cuts(1, 0, 3) == [(1,)]
    assert sorted(random_cuts(3, 0, 9)) == [(1, 1, 1), (1, 2), (2, 1), (3,)]
    assert random_cuts(9, 1, 3) == random_cuts(9, 1, 3) != random_cuts(9, 2, 3)
    assert all(sum(cut) == 9 and min(cut) > 0 for cut in random_cuts(9, 1, 3))


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    told = "import sys; import tidemark_streaming.testing.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pyspark", "pandas", "yaml", "rich", "deltalake", "pydantic", "dagster"}


def test_the_package_exports_only_the_type_of_the_fixture() -> None:
    assert testing.Trials is Trials
    with pytest.raises(AttributeError, match="has no attribute 'Trails'"):
        testing.Trails  # noqa: B018
