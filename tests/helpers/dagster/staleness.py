"""The reasons for which Dagster considers a partition stale."""

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest


def causes(
    instance: dg.DagsterInstance, definitions: dg.Definitions, table: str, partition: str
) -> list[str]:
    """Return the reasons as texts; the list is empty if the partition is not stale."""
    graph, context = definitions.resolve_asset_graph(), LoadingContextForTest(instance)
    resolver = CachingStaleStatusResolver(instance, graph, context)
    return [cause.reason for cause in resolver.get_stale_causes(dg.AssetKey(table), partition)]
