"""List the sources and assets that are stale, without the engine."""

from collections.abc import Iterable, Iterator

from tidemark.define.definition import Definition
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.rollup import RollUp
from tidemark.define.source import Source
from tidemark.store import ledger
from tidemark.store.commits.conditions import number_is
from tidemark.store.event_log.arrival import read_arrivals
from tidemark.store.event_log.steps import Step
from tidemark.store.lineage import Lineage, Stale, StaleError
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.tables import Tables


def list_stale(
    tables: Tables, sources: Iterable[Source], assets: Iterable[Definition]
) -> list[Stale]:
    """Return the stale nodes among some sources and assets, each once.

    A roll-up is never stale: its next run replaces all windows if its base has another history.
    """
    found = [*_of_sources(tables, sources), *_of_assets(tables, assets)]
    return [each for each in found if each is not None]


def find_stale_source(tables: Tables, source: DerivedSource) -> Stale | None:
    """Return why a derived source is stale; None if it is not."""
    stale = Lineage(tables).of_source(source)
    if stale is not None or not isinstance(source.derivation, Chain):
        return stale
    return _find_unreadable_change(tables, source, source.derivation)


def _of_sources(tables: Tables, sources: Iterable[Source]) -> Iterator[Stale | None]:
    for source in sources:
        if isinstance(source, DerivedSource):
            yield tables.read_if_changed(
                (source.name, "stale"),
                _tables_of(source),
                lambda source=source: find_stale_source(tables, source),
            )


def _of_assets(tables: Tables, assets: Iterable[Definition]) -> Iterator[Stale | None]:
    for asset in assets:
        if not isinstance(asset, RollUp):
            yield tables.read_if_changed(
                (asset.name, "stale asset"),
                [asset.state_table, *_tables_of(asset.source)],
                lambda asset=asset: Lineage(tables).of_asset(asset),
            )


def _find_unreadable_change(tables: Tables, source: DerivedSource, chain: Chain) -> Stale | None:
    """Return that a chain can't follow a run that changed windows; None if there is no such run."""
    newest = tables.read_newest(source.timeline_table, "arrival", None, 1)
    if newest is None or newest.num_rows == 0:
        return None
    step = Step.of_position(newest["position"][0].as_py())
    if step.results is None:
        return None
    bounds = [number_is("arrival", step.arrival)]
    rows = tables.read(chain.asset.source.timeline_table, bounds=bounds)
    arrivals = [] if rows is None else read_arrivals(rows)
    watermark = next((arrival.after for arrival in arrivals), None)
    try:
        AssetResults(source.name, chain, tables).changes_since(step.results, watermark)
    except StaleError as error:
        return error.stale
    return None


def _tables_of(source: Source) -> list[str]:
    """Return the tables on which the staleness of a source depends."""
    found: list[str] = [source.timeline_table]
    if isinstance(source, DerivedSource):
        for base in source.bases:
            found += _tables_of(base)
        if (asset := source.derivation.asset) is not None:
            found += [asset.state_table, asset.table, ledger.TABLE]
    return found
