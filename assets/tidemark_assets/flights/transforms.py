"""What is computed from the flights."""

from pyspark.sql import DataFrame

from tidemark import aggregate as agg
from tidemark.transform import windowed_asset
from tidemark.window import Tumbling
from tidemark_assets.flights.sources import flights


@windowed_asset(
    source=flights,
    keys=["origin"],
    window=Tumbling("1 hour"),
    allowed_lateness="3 hours",
    aggregates={
        "flights": agg.count(),
        "cancelled": agg.count(where="dep_time is null"),
        "mean_delay": agg.mean("dep_delay"),
        "worst_delay": agg.max("dep_delay"),
    },
)
def departures_hourly(flights: DataFrame) -> DataFrame:
    """Departures and their delay, by airport and hour of departure."""
    return flights
