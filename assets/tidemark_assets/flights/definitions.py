"""The flights as a code location in Dagster."""

import dagster as dg

from tidemark.dagster import DagsterOptions, domain_definitions

presentation = DagsterOptions(
    # The year 2013 in New York, whose last evening is in 2014 in UTC; the end is exclusive.
    partitions=dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-02"),
    by_asset={
        "carrier_months": dg.MonthlyPartitionsDefinition(
            start_date="2013-01-01", end_date="2014-01-01", timezone="America/New_York"
        )
    },
    owners=["team:flights"],
)

definitions = domain_definitions("tidemark_assets.flights")
