"""Determine without the engine whether sources and assets are stale (`store.lineage`)."""

from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source
from tidemark.store import ledger
from tidemark.store.event_log.steps import Step
from tidemark.store.lineage import Lineage, Stale, StaleError, stale_through
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.tables import Tables


def find_stale_source(tables: Tables, source: Source) -> Stale | None:
    """Return why a source is stale; None if it is not. Only derived sources can be stale."""
    if not isinstance(source, DerivedSource):
        return None
    key = source.name, "stale source"
    return tables.read_if_changed(key, _tables_of(source), lambda: _compare_lineage(tables, source))


def find_stale_asset(tables: Tables, asset: Definition) -> Stale | None:
    """Return why an asset is stale; None if it is not. A roll-up is stale if its base is."""
    transform = base_transform(asset)
    read = [transform.state_table, *_tables_of(transform.source)]
    key = transform.name, "stale asset"
    stale = tables.read_if_changed(key, read, lambda: Lineage(tables).of_asset(transform))
    if stale is None:
        return None
    return stale_through(asset.name, stale)


def _compare_lineage(tables: Tables, source: DerivedSource) -> Stale | None:
    stale = Lineage(tables).of_source(source)
    if stale is None and isinstance(source.derivation, Chain):
        return _find_unreadable_run(tables, source, source.derivation)
    return stale


def _find_unreadable_run(tables: Tables, source: DerivedSource, chain: Chain) -> Stale | None:
    """Return that a chain can't follow a run that changed windows; None if there is none."""
    newest = tables.read_newest(source.timeline_table, "arrival", None, 1)
    if newest is None or newest.num_rows == 0:
        return None
    step = Step.of_position(newest["position"][0].as_py())
    if step.results is None:
        return None
    results = AssetResults(source, chain, tables)
    try:
        results.changes_since(step.results, results.watermark_after(step.taken_arrival))
    except StaleError as error:
        return error.stale
    return None


def _tables_of(source: Source) -> list[str]:
    """Return the tables on which the staleness of a source depends."""
    names: list[str] = [source.timeline_table]
    if isinstance(source, DerivedSource):
        for base in source.base_sources:
            names += _tables_of(base)
        if (asset := source.derivation.asset) is not None:
            names += [asset.state_table, asset.published_table, ledger.TABLE]
    return names
