"""Assets of the flights: tumbling, sliding, session, calendar, and cumulating windows."""

from pyspark.sql import DataFrame

import tidemark as tm
from tidemark_assets.flights.sources import flights

DELAYED = "dep_delay >= 15"
"""A delay of a quarter of an hour or more, as in the airlines' own statistics."""

USUAL_VOLUME = tm.expect.volume_within(
    0.5, of="the same hour last week", at_least=10, level="warning"
)
FEW_CANCELLED = tm.expect.between("cancelled", max_value=10, level="warning")
"""Warnings, not errors: many cancellations are possible on holidays and in snow storms."""

LEAST_DELAY, MOST_DELAY = -60, 1440
"""In minutes: no flight departs an hour early, and a flight that is a day late is canceled."""


@tm.windowed_asset(
    source=flights,
    keys=["origin"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="3 hours",
    aggregates={
        "flights": tm.agg.count(),
        "cancelled": tm.agg.count(where="dep_time is null"),
        "mean_delay": tm.agg.mean("dep_delay"),
        "worst_delay": tm.agg.max("dep_delay"),
    },
    expectations=[
        tm.expect.between("mean_delay", -60, 600),
        tm.expect.matches_log(),
        USUAL_VOLUME,
        FEW_CANCELLED,
    ],
)
def departures_hourly(flights: DataFrame) -> DataFrame:
    """Departures and their delay, by airport and hour of departure."""
    return flights


departures_daily = tm.rollup(
    of=departures_hourly,
    name="departures_daily",
    window=tm.Tumbling("1 day"),
    expectations=[tm.expect.between("mean_delay", LEAST_DELAY, 300), tm.expect.matches_log()],
    description="Departures and their delay, by airport and UTC day, merged from the hours.",
)


@tm.windowed_asset(
    source=flights,
    keys=["origin", "carrier"],
    window=tm.Tumbling("1 hour"),
    allowed_lateness="3 hours",
    aggregates={
        "flights": tm.agg.count(),
        "cancelled": tm.agg.count(where="dep_time is null"),
        "delayed": tm.agg.count(where=DELAYED),
        "total_delay": tm.agg.sum("dep_delay"),
    },
    expectations=[tm.expect.between("flights", 1, 40), FEW_CANCELLED],
)
def departures_by_carrier(flights: DataFrame) -> DataFrame:
    """Departures, cancellations and total minutes of delay, by airport, carrier and hour."""
    return flights


@tm.windowed_asset(
    source=flights,
    keys=["origin"],
    window=tm.Sliding("3 hours", "30 minutes"),
    allowed_lateness="3 hours",
    aggregates={
        "departures": tm.agg.count(),
        "delayed": tm.agg.count(where=DELAYED),
        "median_delay": tm.agg.quantile("dep_delay", 0.5),
        "p90_delay": tm.agg.quantile("dep_delay", 0.9),
    },
    expectations=[tm.expect.between("p90_delay", LEAST_DELAY, MOST_DELAY)],
)
def congestion_rolling(flights: DataFrame) -> DataFrame:
    """Congestion of an airport: departures of the last three hours and their delay, each half hour.

    Canceled flights are not counted, because they do not use the runway.
    """
    return flights.where("dep_time is not null")


@tm.windowed_asset(
    source=flights,
    keys=["tailnum"],
    window=tm.Session("6 hours"),
    allowed_lateness="3 hours",
    aggregates={
        "legs": tm.agg.count(),
        "air_minutes": tm.agg.sum("air_time"),
        "miles": tm.agg.sum("distance"),
        "destinations": tm.agg.count_distinct("dest"),
        "first_from": tm.agg.first("origin"),
        "last_to": tm.agg.last("dest"),
        "worst_delay": tm.agg.max("dep_delay"),
    },
    expectations=[
        tm.expect.not_null("tailnum"),
        tm.expect.between("legs", 1, 8),
        tm.expect.between("air_minutes", 0, 1440),
    ],
)
def aircraft_days(flights: DataFrame) -> DataFrame:
    """An aircraft's working day, by tail number: departures that are at most six hours apart.

    Canceled flights and flights without a tail number are not counted. In 2013, only canceled
    flights have no tail number.
    """
    return flights.where("dep_time is not null and tailnum is not null")


@tm.windowed_asset(
    source=flights,
    keys=["carrier"],
    window=tm.Calendar("month", "America/New_York"),
    allowed_lateness="1 day",
    trigger=tm.Trigger(early=tm.Every("1 day")),
    accumulation="accumulating",
    aggregates={
        "airline": tm.agg.last("airline"),
        "flights": tm.agg.count(),
        "cancelled": tm.agg.count(where="dep_time is null"),
        "delayed": tm.agg.count(where=DELAYED),
        "mean_delay": tm.agg.mean("dep_delay"),
        "aircraft": tm.agg.count_distinct("tailnum"),
        "miles": tm.agg.sum("distance", where="dep_time is not null"),
        "top_destinations": tm.agg.top_k("dest", 3),
    },
    expectations=[tm.expect.between("mean_delay", LEAST_DELAY, 120, level="warning")],
)
def carrier_months(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """A carrier's calendar month in New York, updated each day until the month ends.

    `airline` is the carrier's name at the arrival of its newest flight.
    """
    return flights.join(airlines, "carrier", "left")


@tm.windowed_asset(
    source=flights,
    keys=["origin"],
    window=tm.Cumulating("1 day", "1 hour", offset="5 hours"),
    allowed_lateness="3 hours",
    aggregates={
        "flights": tm.agg.count(),
        "cancelled": tm.agg.count(where="dep_time is null"),
        "delayed": tm.agg.count(where=DELAYED),
        "minutes_lost": tm.agg.sum("greatest(dep_delay, 0)"),
    },
    expectations=[tm.expect.between("flights", 1, 500)],
)
def day_totals(flights: DataFrame) -> DataFrame:
    """An airport's day so far, hour by hour, from 05:00 UTC (midnight in New York in winter)."""
    return flights
