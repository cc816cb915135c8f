"""Test the transforms of flights: stream equals batch, and both equal a computation in pandas."""

import pandas as pd
import pytest

from helpers.suite.nightly import mostly_nightly
from tidemark.define.transform import WindowedTransform
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_assets.flights import transforms
from tidemark_assets.flights.connectors import ingestion
from tidemark_assets.flights.sources import flights
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.ingest.play import play_files

OTHER_WINDOWS = [
    transforms.congestion_rolling,
    transforms.aircraft_days,
    transforms.carrier_months,
    transforms.day_totals,
]
KEY = "window_start"


@pytest.fixture(scope="module")
def days(shared: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Return a warehouse with the flights of three days around the end of a month."""
    excerpt = Excerpt(start="2013-01-31", days=3)
    list(play_files(shared, ingestion, tmp_path_factory.mktemp("landing"), excerpt, batch=None))
    return shared


@pytest.fixture(scope="module")
def records(days: Warehouse) -> pd.DataFrame:
    """Return the rows of the event log."""
    rows = Log(days, flights).read_events(-1, 11).toPandas()
    rows["departure"] = rows["departure"].dt.tz_localize("UTC")
    return rows


# One run for each of many arrivals.
@pytest.mark.slow
@pytest.mark.parametrize("transform", mostly_nightly(OTHER_WINDOWS), ids=lambda t: t.name)
def test_incremental_runs_equal_one_batch_computation(
    days: Warehouse, transform: WindowedTransform
) -> None:
    for limit in (5, None):
        assert incremental(days, transform, limit=limit) is not None
    report = check_parity(days, transform)
    assert report.windows > 0
    assert report.is_equal, report.differences


def complete(warehouse: Warehouse, transform: WindowedTransform) -> pd.DataFrame:
    """Return the windows including too-late events, ordered by window and keys."""
    backfill(warehouse, transform, late_events="include")
    rows = warehouse.read_frame(transform.published_table).toPandas()
    for bound in ("window_start", "window_end"):
        rows[bound] = rows[bound].dt.tz_localize("UTC")
    return rows.sort_values(transform.by_window, ignore_index=True)


@pytest.mark.nightly
@pytest.mark.slow
def test_congestion_covers_three_hours_every_half_hour(
    days: Warehouse, records: pd.DataFrame
) -> None:
    found = complete(days, transforms.congestion_rolling)
    assert found["window_start"].drop_duplicates().diff().min() == pd.Timedelta("30min")
    assert set(found["window_end"] - found["window_start"]) == {pd.Timedelta("3h")}
    flown = records[records["dep_time"].notna()]
    for row in found[found["origin"] == "JFK"].iloc[::5].itertuples():
        inside = flown["departure"].between(row.window_start, row.window_end, inclusive="left")
        delay = flown.loc[inside & (flown["origin"] == "JFK"), "dep_delay"]
        assert (row.departures, row.delayed) == (len(delay), (delay >= 15).sum())
        assert row.median_delay == delay.quantile(0.5, "lower")


@pytest.mark.nightly
@pytest.mark.slow
def test_an_aircraft_session_ends_after_six_hours_on_the_ground(
    days: Warehouse, records: pd.DataFrame
) -> None:
    found = complete(days, transforms.aircraft_days)
    assert found["tailnum"].notna().all()
    flown = records[records["dep_time"].notna()].sort_values("departure", kind="stable")
    pause = flown.groupby("tailnum")["departure"].diff()
    flown["day"] = (pause > pd.Timedelta("6h")).groupby(flown["tailnum"]).cumsum()
    by_hand = flown.groupby(["tailnum", "day"]).agg(
        window_start=("departure", "min"),
        legs=("departure", "size"),
        miles=("distance", "sum"),
        first_from=("origin", "first"),
        last_to=("dest", "last"),
        destinations=("dest", "nunique"),
    )
    expected = by_hand.reset_index().set_index([KEY, "tailnum"]).drop(columns="day")
    both = found.set_index([KEY, "tailnum"]).join(expected, rsuffix="_by_hand", how="left")
    assert (both["legs"] > 1).sum() > 100
    for column in ("legs", "miles", "first_from", "last_to", "destinations"):
        assert (both[column] == both[f"{column}_by_hand"]).all(), column


def test_carrier_months_follow_the_new_york_calendar(
    days: Warehouse, records: pd.DataFrame
) -> None:
    found = complete(days, transforms.carrier_months)
    local = found["window_start"].dt.tz_convert("America/New_York")
    assert set(local.dt.strftime("%m-%d %H:%M")) == {"01-01 00:00", "02-01 00:00"}
    january = found[found["window_end"] == "2013-02-01T05:00Z"]
    assert january["final"].all()
    assert (january["timing"] == "ON_TIME").all()
    airlines = january.set_index("carrier")["airline"]
    assert airlines["UA"] == "United Air Lines Inc."
    assert airlines.notna().all()
    by_hand = records[records["departure"] < "2013-02-01T05:00Z"].groupby("carrier")
    for row in january.to_dict("records"):
        of_month = by_hand.get_group(row["carrier"])
        assert row["flights"] == len(of_month)
        assert row["aircraft"] == of_month["tailnum"].nunique()
        assert row["top_destinations"][0]["count"] == of_month["dest"].value_counts().max()


def test_an_open_month_fires_an_early_pane(days: Warehouse) -> None:
    panes = days.read_frame(transforms.carrier_months.panes_table).toPandas().sort_values("pane")
    united = panes[(panes["carrier"] == "UA") & (panes["window_end"] == "2013-02-01T05:00")]
    assert list(united["timing"]) == ["EARLY", "ON_TIME"]
    assert united["flights"].is_monotonic_increasing


@pytest.mark.nightly
@pytest.mark.slow
def test_day_totals_grow_by_the_hour(days: Warehouse, records: pd.DataFrame) -> None:
    found = complete(days, transforms.day_totals)
    for row in found[found["origin"] == "EWR"].itertuples():
        inside = records["departure"].between(row.window_start, row.window_end, inclusive="left")
        delay = records.loc[inside & (records["origin"] == "EWR"), "dep_delay"]
        assert row.flights == len(delay)
        assert row.cancelled == delay.isna().sum()
        assert row.minutes_lost == delay[delay > 0].sum()
    day = found[(found["origin"] == "EWR") & (found["window_start"] == "2013-02-01T05:00Z")]
    assert day["flights"].is_monotonic_increasing
    assert 20 <= len(day) <= 24


def test_delays_by_carrier_add_up_to_the_hourly_delays(days: Warehouse) -> None:
    carriers = complete(days, transforms.departures_by_carrier)
    hours = complete(days, transforms.departures_hourly).set_index([KEY, "origin"])
    summed = carriers.groupby([KEY, "origin"])[["flights", "cancelled", "total_delay"]].sum()
    assert (summed["flights"] == hours["flights"]).all()
    flown = hours["flights"] - hours["cancelled"]
    mean = (summed["total_delay"] / flown)[flown > 0].astype(float)
    assert mean.sub(hours["mean_delay"][flown > 0]).abs().max() < 1e-9
