"""The Dagster options of the domain."""

import dagster as dg

from tidemark.dagster import DagsterOptions, domain_definitions

presentation = DagsterOptions(partitions=dg.DailyPartitionsDefinition(start_date="2026-01-01"))

definitions = domain_definitions("numbered")
