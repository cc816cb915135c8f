"""The Dagster options of the domain."""

import dagster as dg

from tidemark.dagster import DagsterOptions

presentation = DagsterOptions(partitions=dg.DailyPartitionsDefinition(start_date="2026-01-01"))
