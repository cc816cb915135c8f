"""Dagster assets in a user's own file.

    @dagster_asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    @tm.windowed_asset(source=orders, window=tm.Tumbling("1 hour"), aggregates={...})
    def orders_hourly(orders): ...

    defs = dg.Definitions(assets=[orders_hourly, my_report])

They are the assets of a domain, but they need no executor and no resource of the project.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import dagster as dg

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark_assets.base.names import StandaloneNames
from tidemark_assets.parameter import WINDOWS, reader
from tidemark_assets.plain_definitions import register_definition
from tidemark_assets.tables.options import AssetOptions, check_partitions
from tidemark_assets.tables.source_assets import log_asset
from tidemark_assets.tables.windows import windows_asset
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.derived import ingestion_of

__all__ = ["TidemarkAsset", "dagster_asset"]

_STANDALONE = StandaloneNames()


class TidemarkAsset(dg.AssetsDefinition):
    """A Dagster asset with its Tidemark definition. `dagster_asset` creates it.

    Pass it to `dg.Definitions(assets=[...])`, as any asset of Dagster.

    Args:
        definition: the definition of Tidemark, as `dagster_asset` got it. Copies that Dagster makes
            of an asset have none.
        attributes: the arguments of `dg.AssetsDefinition`.
    """

    def __init__(
        self,
        *,
        definition: Definition | Ingestion | None = None,
        **attributes: Any,  # noqa: ANN401 (Dagster's)
    ) -> None:
        super().__init__(**attributes)
        self._definition = definition

    @property
    def definition(self) -> Definition:
        """The definition of the windows, for example to roll them up: `tm.rollup(of=…)`."""
        if isinstance(self._definition, Definition):
            return self._definition
        raise DefinitionError(f"{self} has no definition of windows.")


@overload
def dagster_asset(
    definition: Definition,
    *,
    partitions_def: dg.PartitionsDefinition[Any],
    group_name: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
) -> TidemarkAsset: ...


@overload
def dagster_asset(
    definition: Ingestion | DerivedSource,
    *,
    group_name: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
) -> TidemarkAsset: ...


@overload
def dagster_asset(
    *,
    partitions_def: dg.PartitionsDefinition[Any],
    group_name: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
) -> Callable[[Definition], TidemarkAsset]: ...


@check_arguments
def dagster_asset(
    definition: Definition | Ingestion | DerivedSource | None = None,
    *,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    group_name: str | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
) -> TidemarkAsset | Callable[[Definition], TidemarkAsset]:
    """Return the Dagster asset of a definition, for your own `dg.Definitions` or module.

    The asset of a windowed asset or a roll-up has its published windows. The asset of an
    `Ingestion`, a join, a union, a chain or a row asset has the event log. The expectations of a
    definition are checks of its asset. The project keeps its executor and needs no resource: a step
    works in the home of the settings (`tidemark.toml` and environment variables), like the command
    line.

    Example:
        @dagster_asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
        @tm.windowed_asset(
            source=orders, window=tm.Tumbling("1 hour"), aggregates={"orders": tm.agg.count()}
        )
        def orders_hourly(orders):
            return orders

    Args:
        definition: the windowed asset, the roll-up, the derived source, or the `Ingestion` of a
            source. Without it, the result is a decorator for a windowed asset.
        partitions_def: the time windows, such as days, by which windows are materialized. A window
            belongs to the partition in which it starts. Event logs have no partitions.
        group_name: the group of the asset, as for `dg.asset`.
        owners: email addresses, or teams as `team:<name>`.
        tags: tags of the asset.
        automation_condition: when Dagster materializes the asset by itself.
        freshness_policy: when Dagster marks the asset as stale, by the wall clock.

    Raises:
        DefinitionError: partitions are missing, are not time windows, or exclude some times. Also
            if an event log has partitions.
    """
    options = AssetOptions(
        group_name, owners, dict(tags or {}), automation_condition, freshness_policy
    )

    def make(windows: Definition) -> TidemarkAsset:
        partitions = check_partitions(f"asset '{windows.name}'", partitions_def)
        register_definition(windows)
        return _standalone(windows, windows_asset(windows, partitions, options, _STANDALONE))

    if definition is None:
        return make
    if isinstance(definition, Definition):
        return make(definition)
    register_definition(definition)
    ingestion = definition
    if isinstance(ingestion, DerivedSource):
        ingestion = ingestion_of(ingestion)
    if partitions_def is not None:
        raise DefinitionError(
            f"The asset of the event log '{ingestion.source.log_table}' has no partitions, because "
            "an ingest takes all that has arrived: remove partitions_def."
        )
    return _standalone(ingestion, log_asset(ingestion, options, _STANDALONE))


def _standalone(definition: Definition | Ingestion, asset: dg.AssetsDefinition) -> TidemarkAsset:
    """Return an asset with the IO manager that passes its windows to downstream assets."""
    attributes = asset.get_attributes_dict()
    # It has its default value, and Dagster warns that it is a beta feature.
    del attributes["execution_type"]
    attributes["resource_defs"] = {_STANDALONE.own(WINDOWS): reader(_STANDALONE)}
    return TidemarkAsset(definition=definition, **attributes)
