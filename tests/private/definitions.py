"""How it appears in Dagster."""

import dagster as dg

from tidemark_assets.build import Presentation

presentation = Presentation(partitions=dg.DailyPartitionsDefinition(start_date="2026-01-01"))
