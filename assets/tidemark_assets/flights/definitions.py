"""How the flights appear in Dagster."""

import dagster as dg

from tidemark_assets.build import Presentation

presentation = Presentation(
    # The year 2013: its first day, and the day after its last one.
    partitions=dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01"),
    owners=["team:flights"],
)
