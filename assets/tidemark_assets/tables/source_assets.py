"""Dagster assets of a source: the origin of its events, and its event log.

One step updates the log and its side tables, the dead letters and the timeline. The lookup tables
are external assets, and so is the external system from which the events come.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext
from pydantic import Field

from tidemark.base.counts import format_count
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source, lookup_name
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import failing_with_message
from tidemark_assets.checks.page_checks import as_result
from tidemark_assets.checks.source_checks import check_arrivals, source_checks
from tidemark_assets.metadata import describe, run_metadata, side_tables
from tidemark_assets.metadata.provenance import log_data_version
from tidemark_assets.tables.options import AssetOptions
from tidemark_assets.tables.windows import KINDS, tags_of
from tidemark_streaming.connector import Connector, Excerpt, Ingestion
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.home.orchestrator import ENGINE_POOL
from tidemark_streaming.ingest.ingest import fill_lookup_tables, ingest
from tidemark_streaming.ingest.play import play_files
from tidemark_streaming.kafka import KafkaConnector


class IngestConfig(dg.Config):
    """The data to ingest into the log."""

    play_days: int = Field(
        default=0,
        ge=0,
        description=(
            "First ingest this many days of the source's recorded data, counted from its first "
            "day; 0 ingests only the pending data."
        ),
    )


def connector_asset(
    connector: Connector, options: AssetOptions, names: Names = PLAIN
) -> dg.AssetSpec:
    """Return the asset of a source's external system, with which the lineage begins."""
    description = f"The external origin of the events of {connector.source.name}."
    match connector:
        case KafkaConnector():
            kind = "kafka"
        case DeltaConnector():
            kind = "deltalake"
        case _:
            kind = "file"
    key = names.key(_connector(connector.source))
    return _outside(key, description, kind, connector.source, options)


def reference_assets(
    source: Source, options: AssetOptions, names: Names = PLAIN
) -> list[dg.AssetSpec]:
    """Return the assets of a source's lookup tables, which other programs write."""
    description = (
        f"Lookup table of {source.name}: each event is joined with the version that was current "
        "at its arrival."
    )
    return [
        _outside(names.key(lookup_name(lookup)), description, "deltalake", source, options)
        for lookup in source.lookups
    ]


def _outside(
    key: dg.AssetKey, description: str, kind: str, source: Source, options: AssetOptions
) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        description=description,
        group_name=options.group_name,
        owners=options.owners,
        tags=tags_of(source, options),
        kinds={kind},
    )


def log_asset(
    ingestion: Ingestion, options: AssetOptions, names: Names = PLAIN
) -> dg.AssetsDefinition:
    """Return the asset of a source's log. Its materialization ingests pending data."""
    source = ingestion.source
    log = dg.AssetSpec(
        names.key(source.log_table),
        freshness_policy=options.freshness_policy,
        deps=_origins(source, names),
        description=f"The event log of {source.name}: every event, with the data of its arrival.",
        metadata={
            **describe.log(source),
            **side_tables.side_table_metadata(side_tables.source_side_tables(source)),
        },
        group_name=options.group_name,
        owners=options.owners,
        tags=tags_of(source, options),
        automation_condition=options.automation_condition,
        kinds=KINDS,
    )

    @dg.multi_asset(
        name=names.own(f"ingest_{source.name}"),
        specs=[log],
        check_specs=source_checks(names, source),
        pool=ENGINE_POOL,
        required_resource_keys=names.needs,
    )
    def bring(
        context: AssetExecutionContext,
        config: IngestConfig,
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        tidemark = names.tidemark(context)
        keys = names.of_key(context.asset_key)
        with failing_with_message():
            warehouse = tidemark.warehouse
            landing = tidemark.landing(source)
            if config.play_days:
                commits = play_files(
                    warehouse, ingestion, landing, Excerpt(days=config.play_days), batch=None
                )
            else:
                fill_lookup_tables(warehouse, ingestion)
                commits = ingest(warehouse, ingestion.connector(landing), batch=None)
            arrivals = [arrival for commit in commits for arrival in commit.arrivals]
            context.log.info(f"Ingested {format_count(len(arrivals), 'arrival')}.")
            metadata = run_metadata.ingest_metadata(warehouse, source, arrivals)
            version = log_data_version(tidemark.snapshot(), source)
        yield dg.MaterializeResult(
            asset_key=keys.key(source.log_table), metadata=metadata, data_version=version
        )
        yield from map(as_result, check_arrivals(keys, source, tidemark.snapshot(), arrivals))

    return bring


def _origins(source: Source, names: Names) -> list[dg.AssetKey]:
    """Return the assets from which a source's events come."""
    if isinstance(source, DerivedSource):
        return [names.key(table) for table in source.input_tables]
    return [names.key(_connector(source))]


def _connector(source: Source) -> str:
    return f"{source.name}_connector"
