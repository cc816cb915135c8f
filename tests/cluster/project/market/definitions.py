"""Dagster's code location."""

import dagster as dg

from tidemark.dagster import DagsterOptions, domain_definitions

presentation = DagsterOptions(
    partitions=dg.DailyPartitionsDefinition(start_date="2026-01-01"), owners=["team:market"]
)

definitions = domain_definitions("market")
