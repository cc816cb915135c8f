"""A random history of derived sources: ingests of all sources, and runs of the asset above them."""

import shutil
from random import Random
from uuid import uuid4

from helpers.model.oracle import Row
from tidemark.define.definition import Definition
from tidemark.run import runner
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.steps import Step
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import derived_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.scenario.run.outcome import NOTHING, derived_outcome, outcome
from tidemark_streaming.scenario.run.simulate import small

Steps = dict[str, list[tuple[int, int]]]


def live_through(
    warehouse: Warehouse, scenario: Scenario, chance: Random
) -> tuple[Row, Steps, bool]:
    """Ingest the sources of a scenario in any order, until everything is ingested.

    Return the result, the recorded steps, and whether all derived sources pass parity.
    """
    name = f"_histories/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with small(own) as store:
            _live(store, scenario, chance)
            steps, equal = Steps(), True
            for source in scenario.derived.values():
                names = [base.name for base in source.bases]
                found = [Step.of_position(a.position) for a in Log(store, source).timeline()]
                steps[source.name] = [(names.index(s.base), s.arrival) for s in found]
                equal = equal and (not found or derived_parity(store, source).equal)
        windows = outcome(folder, scenario.transform) if steps[scenario.source.name] else NOTHING
        derived = derived_outcome(folder, list(scenario.derived.values()))
        return {**windows, **derived}, steps, equal
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    if warehouse.exists(source.timeline_table) and Log(warehouse, source).last() is not None:
        runner.incremental(warehouse, asset, limit=limit)
