"""NEXMark as a code location in Dagster."""

import dagster as dg

from tidemark.dagster import DagsterOptions, domain_definitions

presentation = DagsterOptions(
    partitions=dg.DailyPartitionsDefinition(start_date="2015-07-15", end_date="2015-07-16"),
    owners=["team:nexmark"],
)

definitions = domain_definitions("benchmarks.nexmark.domain")
