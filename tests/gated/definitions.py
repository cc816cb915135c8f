"""The Dagster options of the domain."""

import dagster as dg

from tidemark.dagster import DagsterOptions

presentation = DagsterOptions(
    partitions=dg.DailyPartitionsDefinition(start_date="2023-11-14", end_date="2023-11-18")
)
