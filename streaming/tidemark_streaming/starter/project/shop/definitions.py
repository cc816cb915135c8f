"""The Dagster code location of shop, with a partition for each day."""

import dagster as dg
from tidemark_assets.build import Presentation
from tidemark_assets.definitions import domain_definitions

presentation = Presentation(
    partitions=dg.DailyPartitionsDefinition(start_date="2026-01-01"), owners=["team:shop"]
)

definitions = domain_definitions("shop")
