"""Random histories: events in the life of an asset while its arrivals come.

The tables after any history equal those of an undisturbed stream. An item is

- `{arrive: n}`: n more arrivals are ingested;
- `{run: n}`: an incremental run of at most n arrivals;
- `{stream: n}`: the same as a streaming query without a checkpoint, until it is up to date;
- `{restart: {}}`: the process ends, and another continues from the tables;
- `{republish: n}`: the newest n commits of the state are published again over their results;
- `{backfill: {}}`, or of a part of the time, as in `{backfill: [0.25, 0.5]}`.
"""

import shutil
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st

from tidemark.run import runner as run
from tidemark.run.admission import Admission
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.run.memory import MemoryConnector
from tidemark_streaming.scenario.run.outcome import Rows, read_outcome
from tidemark_streaming.scenario.run.simulate import open_small_session
from tidemark_streaming.streams import continuous

Item = dict[str, Any]

_PARTS = st.tuples(st.integers(0, 7), st.integers(1, 8)).map(
    lambda two: [two[0] / 8, min(two[0] + two[1], 8) / 8]
)
_ITEMS = st.sampled_from(
    [
        st.integers(1, 4).map(lambda n: {"arrive": n}),
        st.integers(1, 3).map(lambda n: {"run": n}),
        st.integers(1, 3).map(lambda n: {"republish": n}),
        st.just({"restart": {}}),
        st.just({"backfill": {}}),
        _PARTS.map(lambda part: {"backfill": part}),
    ]
).flatmap(lambda kind: kind)


@st.composite
def histories(draw: st.DrawFn, *, most: int = 6) -> list[Item]:
    """Draw some arrivals and a run, then random items, then the rest of the arrivals."""
    begin = [{"arrive": draw(st.integers(1, 4))}, {"run": draw(st.integers(1, 2))}]
    last = draw(st.sampled_from([{"run": 99}, {"stream": 2}, {"run": 2}]))
    return [*begin, *draw(st.lists(_ITEMS, min_size=1, max_size=most)), {"arrive": 99}, last]


def lived_through(warehouse: Warehouse, scenario: Scenario, history: list[Item]) -> dict[str, Rows]:
    """Run a history and a last increment. Return the tables of the scenario's asset."""
    name = f"_histories/{uuid4().hex[:12]}"
    folder = f"{warehouse.location}/{name}".removeprefix("file://")
    own = Warehouse(warehouse.spark, warehouse.location, name, registered=False)
    try:
        with open_small_session(own) as store:
            asset = _Asset(store, scenario)
            for item in [*history, {"run": 99}]:
                ((what, how),) = item.items()
                getattr(asset, what)(how)
        return read_outcome(folder, scenario.transform)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Asset:
    def __init__(self, warehouse: Warehouse, scenario: Scenario) -> None:
        self.warehouse = warehouse
        self.scenario = scenario
        self.arrived = 0

    def arrive(self, count: int) -> None:
        self.arrived = min(self.arrived + count, len(self.scenario.arrivals))
        here = self.scenario.arrivals[: self.arrived]
        list(ingest(self.warehouse, MemoryConnector(self.scenario.source, here), batch=None))

    def run(self, limit: int) -> None:
        run.incremental(self.warehouse, self.scenario.transform, limit=limit)

    def stream(self, limit: int) -> None:
        path = continuous.checkpoint_path(self.warehouse, self.scenario.transform)
        shutil.rmtree(path.removeprefix("file://"), ignore_errors=True)
        continuous.start_query(
            self.warehouse, self.scenario.transform, admission=Admission(limit), available_now=True
        ).awaitTermination()

    def restart(self, _: object) -> None:
        self.warehouse = Warehouse(self.warehouse.spark, *self.warehouse.place)

    def republish(self, count: int) -> None:
        asset = Asset(self.warehouse, self.scenario.transform)
        newest = asset.state.read_last_commit().commit_number
        tables = (
            asset.transform.published_table,
            asset.transform.panes_table,
            asset.counting_transform.late_table,
        )
        before = [self.warehouse.newest_version(table) for table in tables]
        for commit_number in range(max(newest - count + 1, 0), newest + 1):
            run.republish_commit(asset, asset.state.read_commit(commit_number))
        assert [self.warehouse.newest_version(table) for table in tables] == before

    def backfill(self, part: list[float] | dict[str, object]) -> None:
        if not isinstance(part, list):
            run.backfill(self.warehouse, self.scenario.transform)
            return
        at = list(self.scenario.source.columns).index(self.scenario.source.event_time)
        times = [row[at] for a in self.scenario.arrivals for row in a.rows if row[at] is not None]
        first, last = min(times, default=0) - 1, max(times, default=0) + 1
        start, end = (first + round((last - first) * share) for share in part)
        run.backfill(self.warehouse, self.scenario.transform, start, end)
