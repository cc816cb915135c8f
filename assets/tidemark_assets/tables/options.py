"""Options of assets: how a user wants them to appear in Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import dagster as dg

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration

__all__ = ["DagsterOptions"]


@dataclass(frozen=True)
class AssetOptions:
    """The options of one asset, which have the meaning of the arguments of `dg.asset`."""

    group_name: str | None = None
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None
    freshness_policy: dg.FreshnessPolicy | None = None


def check_partitions(owner: str, partitions: object) -> dg.TimeWindowPartitionsDefinition:
    """Return partitions, or refuse them if they are not time windows or exclude some times.

    Args:
        owner: the owner of the partitions, for the message.
    """
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        raise DefinitionError(
            f"The partitions of {owner} must be time windows, such as "
            f"dg.DailyPartitionsDefinition (got {partitions!r})."
        )
    if partitions.exclusions:
        raise DefinitionError(
            f"The partitions of {owner} have exclusions, so windows of the excluded "
            "times would be in no partition. Remove the exclusions; a partition without "
            "events is empty."
        )
    return partitions


@dataclass(frozen=True)
class DagsterOptions:
    """The appearance of a domain in Dagster. A domain defines nothing else about Dagster.

    Example:
        DagsterOptions(
            partitions=dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1),
            owners=["team:retail"],
        )

    Args:
        partitions: the days, or hours, by which windows are materialized and backfilled. A window
            belongs to the partition in which it starts.
        by_asset: other partitions for some assets, by name of the asset, such as months or days of
            another time zone.
        owners: email addresses, or teams as `team:<name>`.
        tags: tags of all the domain's assets.
        fresh_within: how far the windows' watermark may be behind the newest event.
        arrives_within: for live connectors, by name of the source: how long the log may be without
            an arrival, by the wall clock. After that, a freshness policy marks the log as stale in
            Dagster.
        automation: conditions for automatic materialization, by name of the asset.

    Raises:
        DefinitionError: partitions are not time windows, or exclude some times.
    """

    partitions: dg.TimeWindowPartitionsDefinition
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    fresh_within: str = "1 day"
    arrives_within: Mapping[str, str] = field(default_factory=dict[str, str])
    by_asset: Mapping[str, dg.TimeWindowPartitionsDefinition] = field(
        default_factory=dict[str, dg.TimeWindowPartitionsDefinition]
    )
    automation: Mapping[str, dg.AutomationCondition[dg.AssetKey]] = field(
        default_factory=dict[str, dg.AutomationCondition[dg.AssetKey]]
    )

    def __post_init__(self) -> None:
        all_partitions: Sequence[object] = (self.partitions, *self.by_asset.values())
        for partitions in all_partitions:
            check_partitions("DagsterOptions", partitions)

    def partitions_of(self, asset: str) -> dg.TimeWindowPartitionsDefinition:
        """Return the partitions by which an asset is materialized."""
        return self.by_asset.get(asset, self.partitions)

    def of_asset(self, asset: str, group: str) -> AssetOptions:
        """Return the options of a windowed asset, which is in a group of Dagster."""
        return AssetOptions(group, self.owners, self.tags, self.automation.get(asset))

    def of_source(self, source: str, group: str) -> AssetOptions:
        """Return the options of a source's assets, which are in a group of Dagster."""
        within = self.arrives_within.get(source)
        if within is None:
            policy = None
        else:
            policy = dg.FreshnessPolicy.time_window(timedelta(microseconds=parse_duration(within)))
        return AssetOptions(group, self.owners, self.tags, freshness_policy=policy)
