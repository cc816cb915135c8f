"""A random history of derived sources: ingests of all sources, and runs of the asset above them."""

import shutil
from random import Random
from uuid import uuid4

from helpers.model.chain_oracle import net_rows
from helpers.model.oracle import Row
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.run import runner
from tidemark.run.erase.erase import erase_events
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import to_dicts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.scenario.run.outcome import NOTHING, read_derived_outcome, read_outcome
from tidemark_streaming.scenario.run.simulate import open_small_session

Steps = dict[str, list[tuple[int, int]]]


def live_through(
    warehouse: Warehouse, scenario: Scenario, chance: Random
) -> tuple[Row, Steps, bool]:
    """Ingest the sources of a scenario in any order, until everything is ingested.

    Then change windows without an arrival, and erase events. Return the result before that, the
    recorded steps, and whether everything passes parity before and after.
    """
    name = f"_histories/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with open_small_session(own) as store:
            _live(store, scenario, chance)
            steps = Steps()
            for source in scenario.derived.values():
                names = [base.name for base in source.base_sources]
                found = [Step.of_position(a.position) for a in Log(store, source).read_timeline()]
                steps[source.name] = [(names.index(s.base), s.taken_arrival) for s in found]
            equal = _is_equal(store, scenario)
            windows = (
                read_outcome(folder, scenario.transform) if steps[scenario.source.name] else NOTHING
            )
            derived = read_derived_outcome(folder, list(scenario.derived.values()))
            for change in (_correct, _erase, _erase):
                change(store, scenario, chance)
                equal = equal and _is_equal(store, scenario)
        return {**windows, **derived}, steps, equal
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _assets(scenario: Scenario) -> list[Definition]:
    """Return the assets of a scenario, each after those that it reads."""
    of_chains = [source.derivation.asset for source in scenario.derived.values()]
    return [*(each for each in of_chains if each is not None), scenario.transform]


def _has_arrivals(warehouse: Warehouse, source: Source) -> bool:
    return (
        warehouse.has_table(source.timeline_table)
        and Log(warehouse, source).find_last_arrival() is not None
    )


def _is_equal(warehouse: Warehouse, scenario: Scenario) -> bool:
    """Return whether all derived sources and assets equal their recomputations.

    The asset of a chain of changes may have been corrected. So it is compared with the chain, whose
    rows that are not retracted are its windows.
    """
    sources = [s for s in scenario.derived.values() if _has_arrivals(warehouse, s)]
    corrected = [s.derivation.asset for s in scenario.derived.values() if s.retraction is not None]
    assets = [
        asset
        for asset in _assets(scenario)
        if asset not in corrected and _has_arrivals(warehouse, asset.source)
    ]
    return (
        all(check_derived_parity(warehouse, source).is_equal for source in sources)
        and all(check_parity(warehouse, each).is_equal for each in assets)
        and all(_nets_to_windows(warehouse, s) for s in sources if s.retraction is not None)
    )


def _nets_to_windows(warehouse: Warehouse, changes: DerivedSource) -> bool:
    asset = changes.derivation.asset
    assert asset is not None
    values = [*asset.keys, *asset.aggregates]
    order = [("arrival", "ascending"), ("position", "ascending")]
    rows = to_dicts(warehouse.load_rows(changes.log_table).sort_by(order))
    windows = to_dicts(
        warehouse.load_rows(asset.published_table, columns=["window_start", "window_end", *values])
    )
    return net_rows(rows, values) == sorted((tuple(w.values()) for w in windows), key=str)


def _correct(warehouse: Warehouse, scenario: Scenario, chance: Random) -> None:
    """Count too-late events in the windows of a chain of changes, and let it follow."""
    for source in scenario.derived.values():
        asset, last = source.derivation.asset, None
        if _has_arrivals(warehouse, source):
            last = Log(warehouse, source).find_last_arrival()
        if asset is None or source.retraction is None or last is None or last.ends_source:
            continue
        if chance.random() < 0.5:
            runner.correct(warehouse, asset)
        else:
            runner.backfill(warehouse, asset, late_events="include")
        list(ingest(warehouse, DerivedConnector(source), batch=None))
    _run(warehouse, scenario.transform, limit=None)


def _erase(warehouse: Warehouse, scenario: Scenario, chance: Random) -> None:
    """Erase an event of any source."""
    source = chance.choice(list(scenario.sources.values()))
    ids = [row["id"] for row in warehouse.load_rows(source.log_table).to_pylist()]
    if not ids:
        return
    derived = list[DerivedSource]()
    for each in scenario.derived.values():
        names = {source.name, *(found.name for found in derived)}
        if any(base.name in names for base in each.base_sources):
            derived.append(each)
    names = {source.name, *(found.name for found in derived)}
    assets = [each for each in _assets(scenario) if each.source.name in names]
    erase_events(warehouse, source, assets, f"id = '{chance.choice(ids)}'", derived=derived)


def _live(warehouse: Warehouse, scenario: Scenario, chance: Random) -> None:
    arrivals = {name: scenario.arrivals_of(s) for name, s in scenario.sources.items()}
    given = dict.fromkeys(arrivals, 0)
    while any(given[name] < len(own) for name, own in arrivals.items()):
        for name, source in scenario.sources.items():
            given[name] = min(given[name] + chance.choice([0, 2, 5]), len(arrivals[name]))
            connector = MemoryConnector(source, arrivals[name][: given[name]])
            list(ingest(warehouse, connector, batch=None))
        for source in scenario.derived.values():
            asset = source.derivation.asset
            if asset is not None and chance.random() < 0.7:
                _run(warehouse, asset, limit=chance.choice([2, None]))
            if chance.random() < 0.7:
                batch = chance.choice([2, None, None])
                list(ingest(warehouse, DerivedConnector(source), batch=batch))
        # Another process continues.
        warehouse = Warehouse(warehouse.spark, *warehouse.place)
        if chance.random() < 0.5:
            _run(warehouse, scenario.transform, limit=chance.choice([2, None]))
    for source in scenario.derived.values():
        if source.derivation.asset is not None:
            _run(warehouse, source.derivation.asset, limit=None)
        list(ingest(warehouse, DerivedConnector(source), batch=None))
    _run(warehouse, scenario.transform, limit=None)


def _run(warehouse: Warehouse, asset: Definition, limit: int | None) -> None:
    source = asset.source
    if (
        warehouse.has_table(source.timeline_table)
        and Log(warehouse, source).find_last_arrival() is not None
    ):
        runner.incremental(warehouse, asset, limit=limit)
