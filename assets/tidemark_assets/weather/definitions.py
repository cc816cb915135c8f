"""The weather as a code location in Dagster."""

import dagster as dg

from tidemark.dagster import DagsterOptions, domain_definitions

presentation = DagsterOptions(
    partitions=dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01"),
    by_asset={
        "weather_days": dg.DailyPartitionsDefinition(
            start_date="2013-01-01", end_date="2014-01-01", timezone="America/New_York"
        )
    },
    owners=["team:weather"],
)

definitions = domain_definitions("tidemark_assets.weather")
